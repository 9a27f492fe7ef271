package supervisor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
	"go.uber.org/zap"
)

// crash makes a child panic in its next message.
func (w *world) crash(child string, msg any) {
	w.t.Helper()
	before := w.crashes()
	w.send(child, msg)
	w.eventually(child+" crashes", func() bool { return w.crashes() > before })
}

func (w *world) crashes() int {
	return w.logs.FilterMessage("actor crashed, restarting").Len()
}

func (w *world) crashNode() { w.t.Helper(); w.crash("node", (*messages.HeartbeatSent)(nil)) }

// pause pauses a projection without a notification.
func (w *world) pause(row int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused[row] = true
}

// pauseAndNotify pauses a projection.
func (w *world) pauseAndNotify(row int32) {
	w.pause(row)
	w.deps.System.Root.Send(w.sup.pid, &messages.Notified{Notice: engine.Notice{Control: true, Row: row}})
}

func (w *world) releases(row int32) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.released {
		if a.Lease.Row == row {
			n++
		}
	}
	return n
}

// othersGoOn checks that all projections but the first apply what comes, and that none of them was restarted.
func (w *world) othersGoOn() {
	w.t.Helper()
	w.append()
	others := w.ids(w.tenants...)[1:]
	w.eventually("the others go on", func() bool {
		return !slices.ContainsFunc(others, func(id projection.ID) bool { return w.checkpoint(id) < w.head.Load() })
	})
	w.mustHaveStarted(1, others...)
}

// blocked runs five projections. The first blocks in its next batch until let is called.
func blocked(t *testing.T) (w *world, first projection.ID, let func()) {
	var armed atomic.Bool
	entered, held := make(chan struct{}, 100), make(chan struct{})
	w = start(t, 5, []string{"a"}, func(id projection.ID) error {
		if armed.Load() && id.Name == "p000" {
			entered <- struct{}{}
			<-held
		}
		return nil
	})
	let = sync.OnceFunc(func() { close(held) })
	t.Cleanup(let)
	armed.Store(true)
	w.append()
	<-entered
	return w, w.ids("a")[0], let
}

// A report of a projection while the node is restarted is lost. The next node asks for it again.
func TestDrainedReportThatIsLostWithTheNodeIsRequestedAgain(t *testing.T) {
	w, first, let := blocked(t)
	w.pauseAndNotify(1)
	w.eventually("only the batch is missing", func() bool { return w.deps.Registry.Working()[first].Limit > 0 })
	w.othersGoOn() // so the notification was handled
	w.crashNode()
	let() // the projection is drained before there is another node
	w.eventually("the lease is released", func() bool { return w.releases(1) > 0 })
	w.eventually("its actor is gone", func() bool { return w.child(first.String()) == nil })
	w.othersGoOn()
	w.mustHaveStarted(1, first)
	if n := w.releases(1); n != 1 {
		t.Errorf("the lease was released %d times", n)
	}
}

func TestNodeThatCrashesAdoptsTheLeasesInTheDatabase(t *testing.T) {
	w, first, let := blocked(t)
	second := w.ids("a")[1]
	w.crashNode()
	w.pause(1) // the notification is lost
	w.mu.Lock()
	w.taken[2] = true
	w.mu.Unlock()
	w.eventually("what others took is stopped", func() bool { return w.child(second.String()) == nil })
	w.mu.Lock()
	delete(w.taken, 2) // it comes back, and the answer to the claim is lost
	w.mu.Unlock()
	w.crashNode()
	w.eventually("what the database lists runs", func() bool { return w.started(second) == 2 })
	let()
	w.eventually("the paused lease is released", func() bool { return w.releases(1) == 1 })
	w.eventually("its actor is gone", func() bool { return w.child(first.String()) == nil })
	w.append()
	w.eventually("the others go on", func() bool { return w.checkpoint(second) == w.head.Load() })
	if c := w.seen.changes(second); !slices.Equal(c,
		[]observe.LeaseChange{observe.LeaseClaimed, observe.LeaseLost, observe.LeaseClaimed}) {
		t.Errorf("the observer saw that the lease was %q", c)
	}
	if c := w.seen.changes(first); !slices.Equal(c,
		[]observe.LeaseChange{observe.LeaseClaimed, observe.LeaseReleased}) {
		t.Errorf("the observer saw that the paused lease was %q", c)
	}
}

func TestListenerThatCrashesMovesNoLease(t *testing.T) {
	w := start(t, 5, []string{"a"}, nil)
	var listener *actor.PID
	for range 4 {
		before := listener
		w.eventually("the session of another listener stands", func() bool {
			listener = w.child("listener")
			return listener != nil && !listener.Equal(before) && w.deps.Registry.Session().Connected
		})
		w.deps.System.Root.Stop(listener)
	}
	w.crashNode()
	w.eventually("the node claims again", func() bool {
		before := w.deps.Registry.Session().Claims
		<-time.After(10 * time.Millisecond)
		return w.deps.Registry.Session().Claims > before
	})
	w.caughtUp()
	w.othersGoOn()
	if n := w.deregistered.Load(); n != 0 {
		t.Errorf("the node deregistered %d times", n)
	}
	w.mu.Lock()
	if len(w.released) > 0 {
		t.Errorf("released: %+v", w.released)
	}
	w.mu.Unlock()
}

func TestNodeThatCrashesDuringTheStopReleasesEveryLease(t *testing.T) {
	w, _, let := blocked(t)
	stopped := make(chan error, 1)
	go func() { stopped <- w.sup.Stop(t.Context(), time.Minute) }()
	w.eventually("the drained leases are released", func() bool { return w.releases(5) == 1 })
	w.crashNode()
	let()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	for row := range int32(5) {
		if w.releases(row+1) == 0 {
			t.Errorf("row %d is not released", row+1)
		}
	}
	w.deps.Wait()
	if n := w.deregistered.Load(); n != 1 {
		t.Errorf("the node deregistered %d times", n)
	}
}

// The database goes away during a release. A stop after that tries the release again, and ends.
func TestStopEndsAfterAReleaseFailed(t *testing.T) {
	w := start(t, 2, []string{"a"}, nil)
	w.during("release", func() { w.away.Store(true) })
	w.pauseAndNotify(1)
	w.eventually("the release fails",
		func() bool { return w.logs.FilterMessage("releasing leases failed, retrying").Len() > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := w.sup.Stop(ctx, time.Second); err != nil {
		t.Error(err)
	}
}

// A projection that crashes while it drains is not restarted: its lease is released as the database has it.
func TestProjectionThatCrashesWhileItDrainsIsReleased(t *testing.T) {
	w, first, let := blocked(t)
	w.pauseAndNotify(1)
	w.othersGoOn()
	w.crash(first.String(), (*messages.Revalidate)(nil))
	w.eventually("the lease is released", func() bool { return w.releases(1) == 1 })
	let()
	w.othersGoOn()
	w.mustHaveStarted(1, first)
}

// If a lease is claimed anew while the actor of the earlier one stops, the new actor starts after its end.
func TestProjectionThatIsClaimedAnewWaitsForTheEndOfItsActor(t *testing.T) {
	w := start(t, 2, []string{"a"}, nil)
	id := w.ids("a")[0]
	lease := w.rows[0]
	for epoch := range int64(5) {
		lease.Epoch = 2 + epoch
		w.deps.System.Root.Send(w.sup.pid, &messages.StartProjection{Lease: lease})
	}
	// of an earlier lease
	w.deps.System.Root.Send(w.sup.pid, &messages.Drain{Key: engine.LeaseKey{Row: lease.Row, Epoch: 3}})
	w.eventually("the last one runs", func() bool {
		started := w.logs.FilterMessage("projection started").FilterField(zap.Int64("epoch", lease.Epoch)).Len()
		return started == 1 && w.child(id.String()) != nil
	})
	w.append()
	w.eventually("it goes on", func() bool { return w.checkpoint(id) == w.head.Load() })
	w.deps.System.Root.Send(w.sup.pid, &messages.Retire{Key: lease.Key()})
	w.eventually("it is gone", func() bool { _, here := w.deps.Registry.Get(id); return !here })
}

// The feed of a tenant holds its mark and its newest events. A tenant that is created again under its name begins anew.
func TestTenantThatWasCreatedAgainHasAFeedOfItsOwn(t *testing.T) {
	w := start(t, 2, []string{"a"}, nil)
	w.append()
	w.caughtUp()
	old := w.child("feed a")
	leases := w.owned()
	again := func(lease engine.Lease) {
		lease.Row, lease.TenantRow = lease.Row+50, 7
		w.deps.System.Root.Send(w.sup.pid, &messages.StartProjection{Lease: lease})
		w.eventually("it starts", func() bool { return w.started(lease.ID) == 2 })
	}
	again(leases[0])
	if n := w.feeds(); n != 2 {
		t.Errorf("%d feeds while projections of both tenants run", n)
	}
	again(leases[1])
	w.eventually("the old feed stops with its last projection",
		func() bool { return w.feeds() == 1 && !w.child("feed a").Equal(old) })
}

// feeds returns how many feeds of tenant a run.
func (w *world) feeds() (n int) {
	for i := range 100 {
		pid := actor.NewPID(w.deps.System.Address(), fmt.Sprintf("%s/feed a#%d", w.sup.pid.Id, i))
		if _, runs := w.deps.System.ProcessRegistry.Get(pid); runs {
			n++
		}
	}
	return n
}
