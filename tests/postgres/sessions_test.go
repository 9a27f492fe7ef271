package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// never is longer than any test. An event that arrives sooner did not arrive by polling.
const never = time.Hour

// appendArrives appends an event, and returns an error if it does not arrive in time.
func (b *bundle) appendArrives(rt *millrace.Runtime, from *pgstore.Store, within time.Duration) error {
	b.T.Helper()
	result, err := from.Append(b.Ctx, "a", event.Any, event.Event{Type: "counted"})
	b.Must(err)
	ctx, cancel := context.WithTimeout(b.Ctx, within)
	defer cancel()
	return rt.WaitFor(ctx, millrace.ProjectionID{Name: "p"}, result.Positions[0])
}

func (b *bundle) mustArrive(rt *millrace.Runtime, from *pgstore.Store) {
	b.T.Helper()
	b.Must(b.appendArrives(rt, from, 20*time.Second))
}

// mustNotArrive is the control: the event does not arrive without a notification.
func (b *bundle) mustNotArrive(rt *millrace.Runtime, from *pgstore.Store) {
	b.T.Helper()
	if err := b.appendArrives(rt, from, 500*time.Millisecond); err == nil {
		b.T.Fatal("the event arrived by some other way")
	}
}

func TestNotificationBringsEventsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	// Without NoNotify a late notification of this store would bring the event of the control.
	b := setup(t, pgstore.Options{NoNotify: true})
	rt := b.Running(millrace.Config{PollInterval: never}, b.Recorders("p")...)
	b.mustArrive(rt, b.store)
	b.mustNotArrive(rt, b.elsewhere(pgstore.Options{NoNotify: true}))
	b.mustArrive(rt, b.elsewhere(pgstore.Options{}))
	b.Verify("p")
}

func TestEventsArriveAtOnceAfterTheSessionConnectionWasTerminated(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.Running(millrace.Config{PollInterval: never}, b.Recorders("p")...)
	other := b.elsewhere(pgstore.Options{})
	b.mustArrive(rt, other)
	for range 5 {
		terminated := time.Now()
		b.terminateSessions()
		// Appended while the node does not listen.
		b.mustArrive(rt, other)
		b.reconnects(rt, terminated)
		b.mustArrive(rt, other)
	}
	b.Verify("p")
}

func TestPollBringsEventsWithoutNotificationAfterTheSessionConnectionWasTerminated(t *testing.T) {
	t.Parallel()
	for name, poll := range map[string]time.Duration{"polling": 100 * time.Millisecond, "not polling": never} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, pgstore.Options{NoNotify: true})
			rt := b.Running(millrace.Config{PollInterval: poll}, b.Recorders("p")...)
			other := b.elsewhere(pgstore.Options{NoNotify: true})
			b.mustArrive(rt, b.store)
			for range 3 {
				terminated := time.Now()
				b.terminateSessions()
				b.mustArrive(rt, other)
				b.reconnects(rt, terminated)
				if poll == never {
					// The control. The first events may still be found since the new connection wakes everything.
					b.Eventually("an event does not arrive",
						func() bool { return b.appendArrives(rt, other, 500*time.Millisecond) != nil })
					b.mustArrive(rt, b.store)
					continue
				}
				for range 5 {
					b.mustArrive(rt, other)
				}
			}
			b.Verify("p")
		})
	}
}

func TestWhyAProjectionFailedIsKnownEverywhereUntilItIsRepaired(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	owner := b.Another(millrace.Config{PollInterval: 50 * time.Millisecond}, b.Recorders("p")...)
	b.Start(owner)
	id := millrace.ProjectionID{Name: "p"}
	last := b.Append("a", 10).Positions[9]
	remote := b.Runtime(millrace.Config{}, b.Recorders("other")...)
	b.Reaches(owner, "p", last)
	b.exec("create table lost as select * from millrace_default.events where global_seq > 4")
	b.exec("delete from millrace_default.events where global_seq > 4")
	if p := b.Is(remote, "p", admin.StateFailed); p.Reason == "" {
		t.Errorf("no reason: %+v", p)
	}
	if err := remote.WaitFor(b.Ctx, id, last+1); !errors.Is(err, projection.ErrFailed) {
		t.Errorf("waiting for a failed projection: %v", err)
	}
	b.exec("insert into millrace_default.events (global_seq, stream_id, stream_version, type, body) overriding system value select global_seq, stream_id, stream_version, type, body from lost")
	b.Resume(remote, "p")
	b.Is(remote, "p", admin.StateLive)
	b.Applied(remote, b.Append("a", 1).Positions[0], "p")
}

// A node whose session ended is not taken for dead if it reconnects in time.
func TestLostSessionMovesNoLease(t *testing.T) {
	b := setup(t, pgstore.Options{})
	const reconcile = 500 * time.Millisecond
	patient := millrace.Config{
		Store: tuning.Settings{Reconcile: reconcile}, LeaseDuration: 30 * time.Second,
		FailureDetection: 20 * time.Second,
	}
	nodes := []*millrace.Runtime{
		b.Another(patient, b.Recorders("p", "q", "r")...), b.Another(patient, b.Recorders("p", "q", "r")...),
	}
	for _, rt := range nodes {
		b.Start(rt)
	}
	// The nodes began at the same time. When the shares first become even, a node may not have seen the others yet. So
	// the test waits until two checks in a row have moved nothing.
	var before int64
	for since := time.Now(); time.Since(since) < 2*reconcile; {
		b.Share(nodes[0], 2)
		if now := b.Epochs(nodes[0]); now != before {
			before, since = now, time.Now()
		}
	}
	for range 5 {
		lost := time.Now()
		b.terminateSessions()
		for _, rt := range nodes {
			b.reconnects(rt, lost)
		}
	}
	<-time.After(time.Second)
	if after := b.Epochs(nodes[0]); after != before || !b.Balanced(nodes[0], 2) {
		t.Errorf("%d leases moved", after-before)
	}
}

// calls are the times at which a node's handler was called.
type calls struct {
	mu sync.Mutex
	at []time.Time
}

func (c *calls) note() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Now())
}

// since returns the calls from a time on.
func (c *calls) since(from time.Time) (at []time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.at), func(at time.Time) bool { return at.Before(from) })
}

// A node whose heartbeats do not arrive cannot know who holds its leases. It rests before other nodes may
// claim them, while everything else of it works.
func TestNodeWhoseHeartbeatsAreLostRestsBeforeItsLeasesAreClaimed(t *testing.T) {
	b := setup(t, pgstore.Options{})
	const lease = 4 * time.Second
	var called [2]calls // of the handlers of p
	var nodes [2]*millrace.Runtime
	for i := range nodes {
		config := millrace.Config{Store: tuning.Settings{Heartbeat: 100 * time.Millisecond,
			Reconcile: 50 * time.Millisecond}, LeaseDuration: lease, FailureDetection: lease,
			PollInterval: 20 * time.Millisecond} // a node does not listen during a heartbeat
		handler := kit.Record("p")
		nodes[i] = b.Another(config, append(b.Recorders("q"),
			millrace.Projection{Name: "p",
				Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
					called[i].note()
					return handler(ctx, tx, events)
				})})...)
		b.Start(nodes[i])
	}
	stopFlow := b.Flow()
	b.Share(nodes[0], 2) // each has one projection, and no share moves any more
	id, first, second := b.Status(nodes[0], "p").Owner, 0, 1
	if b.Summary(nodes[0]).Node != id {
		first, second = 1, 0
	}
	shared := time.Now()
	b.Eventually("the first node handles events", func() bool { return len(called[first].since(shared)) > 0 })
	// The heartbeat waits before it locks the row, so that the other node can mark the node dead. So does the
	// registration over another session.
	session := value[int](b,
		`select l.pid from pg_locks l join millrace.nodes n on n.session_key = l.classid::bigint << 32 | l.objid::bigint
		where n.id = $1 and l.locktype = 'advisory' and l.database = (select oid from pg_database where datname = current_database())`, id)
	b.exec(`create function public.late() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return new; end $$`)
	b.exec(fmt.Sprintf(`create trigger late before update on millrace.nodes for each statement when (pg_backend_pid() = %d) execute function public.late()`, session))
	b.exec(fmt.Sprintf(`create trigger again before insert on millrace.nodes for each row when (new.id = '%s') execute function public.late()`, id))
	b.Eventually("the first node rests", func() bool {
		p := b.Status(nodes[first], "p")
		return p.Owner != id || p.State == admin.StateWaiting && strings.Contains(p.Reason, "no heartbeat")
	})
	b.Eventually("the second node goes on", func() bool { return len(called[second].since(shared)) > 0 })
	expired := value[time.Time](b, "select expires_at from millrace.nodes where id = $1", id)
	// It rests for the last tenth of its lease. On a busy machine, the call of a batch that has begun before may come
	// late.
	if late := called[first].since(expired.Add(-lease / 20)); len(late) > 1 {
		t.Errorf("the first node called its handler %d times around the end of its lease, last %v after it", len(late),
			late[len(late)-1].Sub(expired))
	}
	if next := called[second].since(shared)[0]; next.Before(expired) {
		t.Errorf("the second node called its handler %v before the lease of the first had ended", expired.Sub(next))
	}
	b.Applied(nodes[second], stopFlow(), "p")
}

// The owner may only be frozen, and must not commit when it continues.
func TestPauseReleasesTheLeaseOfADeadOwner(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.Idle(b.Recorders("p")...)

	const dead = "11111111-1111-1111-1111-111111111111"
	b.exec(`insert into millrace.nodes (id, projections, tenants, session_key, expires_at)
		values ('` + dead + `', '{p}', '{}', 1, now() - interval '1 second')`)
	b.exec("update millrace.leases set owner = '" + dead + "', free_since = null, epoch = 7")
	id := millrace.ProjectionID{Name: "p"}
	b.Pause(rt, "p")
	if p := b.Status(rt, "p"); p.State != admin.StatePaused || p.Owner != "" || p.Epoch != 8 {
		t.Errorf("%+v", p)
	}
	// The lease of a living node is not taken.
	b.exec("update millrace.nodes set expires_at = now() + interval '1 hour'")
	b.exec("update millrace.leases set owner = '" + dead + "', free_since = null, epoch = 9")
	short, cancel := context.WithTimeout(b.Ctx, 200*time.Millisecond)
	defer cancel()
	if err := rt.Pause(short, id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the pause of what a living node owns: %v", err)
	}
	if p := b.Status(rt, "p"); p.Owner != dead || p.Epoch != 9 {
		t.Errorf("%+v", p)
	}
}

// A command on dead letters does not wait for an event that waits for its next attempt, also if the notification of the
// command was lost with the session.
func TestDeadLettersAreReplayedWhileAnEventWaitsThoughTheSessionWasLost(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	bad := b.Append("a", 1).Positions[0]
	b.Append("b", 1)
	var mended atomic.Bool
	rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p",
		Retry: projection.RetryPolicy{Base: time.Hour, Cap: time.Hour},
		Handler: b.Store.Each(func(_ context.Context, _ kit.Tx, e event.Envelope) error {
			switch {
			case e.Position > bad:
				return projection.Retry(kit.ErrOnPurpose)
			case mended.Load():
				return nil
			}
			return projection.Park(kit.ErrOnPurpose)
		})})
	b.Eventually("the second event waits",
		func() bool { p := b.Status(rt, "p"); return p.State == admin.StateWaiting && p.Attempts == 1 })
	mended.Store(true)
	lost := time.Now()
	b.terminateSessions()
	b.reconnects(rt, lost)
	if r := <-b.Replaying("p"); r.Done != 1 {
		t.Errorf("replayed %+v", r)
	}
	if p := b.Status(rt, "p"); p.State != admin.StateWaiting || p.Attempts != 1 || p.Parked != 0 {
		t.Errorf("status: %+v", p)
	}
}
