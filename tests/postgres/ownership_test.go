package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestWhyAProjectionFailedIsKnownEverywhereUntilItIsMended(t *testing.T) {
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
	b.Is(remote, "p", millrace.StateFailed)
	if p := b.Status(remote, "p"); p.Reason == "" {
		t.Errorf("no reason: %+v", p)
	}
	if err := remote.WaitFor(b.Ctx, id, last+1); !errors.Is(err, projection.ErrFailed) {
		t.Errorf("waiting for a failed projection: %v", err)
	}
	b.exec("insert into millrace_default.events overriding system value select * from lost")
	b.Resume(remote, "p")
	b.Is(remote, "p", millrace.StateElsewhere)
	b.Reaches(remote, "p", b.Append("a", 1).Positions[0])
	b.Verify("p")
}

// A node whose session was ended is not taken for dead as long as it comes back in time, by those that saw its lock.
func TestLostSessionMovesNoLease(t *testing.T) {
	b := setup(t, pgstore.Options{})
	patient := millrace.Config{LeaseDuration: 30 * time.Second, FailureDetection: 20 * time.Second, ReconcileInterval: 500 * time.Millisecond}
	nodes := []*millrace.Runtime{b.Another(patient, b.Recorders("p", "q", "r")...), b.Another(patient, b.Recorders("p", "q", "r")...)}
	for _, rt := range nodes {
		b.Start(rt)
	}
	// They began at the same time, and each may still see itself alone when they first share evenly: so two looks without a
	// move are waited for.
	var before int64
	for since := time.Now(); time.Since(since) < 2*patient.ReconcileInterval; {
		b.Share(nodes[0], 2)
		if now := b.Epochs(nodes[0]); now != before {
			before, since = now, time.Now()
		}
	}
	connected := func() bool {
		return !slices.ContainsFunc(nodes, func(rt *millrace.Runtime) bool {
			status, err := rt.Status(b.Ctx)
			return err != nil || !status.Session.Connected
		})
	}
	for range 5 {
		b.exec(`select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and query like 'insert into "millrace".nodes%'
			or datname = current_database() and wait_event = 'ClientRead' and query like '%pg_locks%'`)
		b.Eventually("the sessions stand again", connected)
	}
	<-time.After(time.Second)
	if after := b.Epochs(nodes[0]); after != before || !b.Balanced(nodes[0], 2) {
		t.Errorf("%d leases moved", after-before)
	}
}

// A node whose heartbeats do not arrive cannot know who holds its leases. It rests before anybody may claim them, while
// everything else of it works.
func TestNodeWhoseHeartbeatsAreLostRestsBeforeItsLeasesAreClaimed(t *testing.T) {
	b := setup(t, pgstore.Options{})
	var late [2]atomic.Int64 // when each node's handler was called last, in nanoseconds
	node := func(i int) *millrace.Runtime {
		config := millrace.Config{LeaseDuration: 2 * time.Second, HeartbeatInterval: 100 * time.Millisecond, FailureDetection: 2 * time.Second, ReconcileInterval: 50 * time.Millisecond,
			PollInterval: 20 * time.Millisecond} // nobody listens while a heartbeat is under way
		handler := kit.Record("p")
		return b.Another(config, millrace.Projection{Name: "p", Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			late[i].Store(time.Now().UnixNano())
			return handler(ctx, tx, events)
		})})
	}
	first := node(0)
	b.Start(first)
	stopFlow := b.Flow()
	b.Eventually("the first node handles events", func() bool { return late[0].Load() > 0 })
	id := b.Status(first, "p").Owner
	second := node(1)
	b.Start(second)
	b.Eventually("both are alive", func() bool { held, _ := b.Owners(first); return len(held) == 2 })
	// Before the row is locked, so that the other node can look at it, and bury its node.
	b.exec(`create function public.late() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return new; end $$`)
	b.exec(fmt.Sprintf(`create trigger late before insert on millrace.nodes for each row when (new.id = '%s') execute function public.late()`, id))
	b.Eventually("the first node rests", func() bool {
		p := b.Status(first, "p")
		return p.Owner != id || p.State == millrace.StateWaiting && strings.Contains(p.Reason, "no heartbeat")
	})
	b.Eventually("the second node goes on", func() bool { return late[1].Load() > 0 })
	var expired time.Time
	b.Must(b.store.Pool().QueryRow(b.Ctx, "select expires_at from millrace.nodes where id = $1", id).Scan(&expired))
	if last := time.Unix(0, late[0].Load()); !last.Before(expired) {
		t.Errorf("the first node called its handler %v after its lease had ended", last.Sub(expired))
	}
	if next := time.Unix(0, late[1].Load()); next.Before(expired) {
		t.Errorf("the second node called its handler %v before the lease of the first had ended", expired.Sub(next))
	}
	b.Reaches(second, "p", stopFlow())
	b.Verify("p")
}
