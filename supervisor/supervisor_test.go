package supervisor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// attempt is the outcome of a batch while the store is here or away.
func attempt(f *fake, _ projection.ID) error { return f.here() }

func TestOneProbeStandsInForAllProjectionsWhileTheDatabaseIsAway(t *testing.T) {
	const n = 300
	w := start(t, n, []string{"a"}, attempt)
	w.away.Store(true)
	began := time.Now()
	w.recheck()
	w.append()
	w.eventually("every projection has met the outage", func() bool { return w.failed.Load() >= n })
	w.eventually("several probes", func() bool { return w.pings.Load() >= 7 })
	// Probes come after 50 ms, doubling up to 1 s, each up to 30 % sooner.
	if pings, took := w.pings.Load(), time.Since(began); float64(pings) > 8+took.Seconds()/0.7 {
		t.Errorf("%d probes in %v", pings, took)
	}
	// Whoever asked once waits for the probe. A feed or a projection may have asked before the gate was shut, and its delay
	// have ended behind it.
	if failed := w.failed.Load(); failed > n+n/10 {
		t.Errorf("%d projections tried %d times", n, failed)
	}
	before := w.reloads.Load()
	w.away.Store(false)
	w.caughtUp()
	// The node reads all leases in one statement when the database is back.
	if again := w.reloads.Load() - before; again > 0 {
		t.Errorf("%d projections asked for their leases by themselves", again)
	}
	pings := w.pings.Load()
	w.append()
	w.caughtUp()
	if w.pings.Load() != pings {
		t.Error("it is probed though the database is back")
	}
}

func TestCrashOfAProjectionsActorDisturbsNobodyElse(t *testing.T) {
	victim := projection.ID{Tenant: "a", Name: "p003"}
	w := start(t, 10, []string{"a", "b"}, attempt)
	w.mu.Lock()
	w.panics["special"] = true
	w.mu.Unlock()
	special := &engine.Fault{Class: engine.Infrastructure, Err: errors.New("special")}
	w.deps.System.Root.Send(w.child(victim.String()), &messages.LeaseRead{Err: special})
	w.eventually("it is started again", func() bool { return w.started(victim) == 2 })
	w.append()
	w.caughtUp()
	for _, id := range w.ids("a", "b") {
		want := 1
		if id == victim {
			want = 2
		}
		if got := w.started(id); got != want {
			t.Errorf("%s was started %d times, want %d", id, got, want)
		}
	}
	if w.logs.FilterMessage("actor crashed, restarting").Len() != 1 {
		t.Error("the crash was not told once")
	}
}

func TestCrashOfAFeedDisturbsItsTenantAlone(t *testing.T) {
	w := start(t, 5, []string{"a", "b"}, attempt)
	w.mu.Lock()
	w.panics["a"] = true
	w.mu.Unlock()
	w.recheck()
	w.eventually("the tenant's projections are started again", func() bool {
		for _, id := range w.ids("a") {
			if w.started(id) != 2 {
				return false
			}
		}
		return true
	})
	w.append()
	w.caughtUp()
	for _, id := range w.ids("b") {
		if got := w.started(id); got != 1 {
			t.Errorf("%s was started %d times", id, got)
		}
	}
}

func TestCrashOfTheSupervisorEndsTheRuntimeWithTheReason(t *testing.T) {
	w := start(t, 3, []string{"a"}, attempt)
	w.deps.System.Root.Send(w.sup.pid, &messages.Faulted{}) // from nobody, which cannot be
	select {
	case <-w.sup.Done():
	case <-time.After(time.Minute):
		t.Fatal("the runtime goes on without its supervisor")
	}
	if w.sup.Err() == nil {
		t.Error("no reason is given")
	}
}

func TestStopGivesBackEveryLeaseOnceAndMayBeCalledAgain(t *testing.T) {
	w := start(t, 20, []string{"a", "b"}, attempt)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		if err := w.sup.Stop(ctx, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if w.sup.Err() != nil {
		t.Error(w.sup.Err())
	}
	seen := make(map[int32]int)
	for _, a := range w.released {
		seen[a.Lease.Row]++
		if a.To != w.head.Load() {
			t.Errorf("%s is given back at %d, want %d", a.Lease.ID, a.To, w.head.Load())
		}
	}
	if len(seen) != 40 || len(w.released) != 40 {
		t.Errorf("%d leases given back %d times, want 40", len(seen), len(w.released))
	}
}

func TestLeaseOfAClaimThatWasUnderWayAtTheEndIsGivenBack(t *testing.T) {
	w := start(t, 3, []string{"a"}, func(*fake, projection.ID) error { return nil })
	claiming, let := make(chan struct{}), make(chan struct{})
	w.during("claim", func(*engine.Lease) {
		close(claiming)
		<-let
	})
	late := engine.Lease{Row: 99, ID: projection.ID{Tenant: "b", Name: "p001"}, Owner: "a node", Epoch: 1}
	w.mu.Lock()
	w.late = &late
	w.mu.Unlock()
	<-claiming
	released := func(n int) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.released) == n
	}
	stopped := make(chan error, 1)
	go func() { stopped <- w.sup.Stop(context.Background(), time.Minute) }()
	w.eventually("the others are given back", func() bool { return released(3) })
	close(let)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if !released(4) || w.released[3].Lease != late {
		t.Errorf("given back: %+v", w.released)
	}
}

func TestProjectionThatLostItsLeaseIsNotStartedAgain(t *testing.T) {
	w := start(t, 20, []string{"a"}, func(*fake, projection.ID) error { return nil })
	w.lost.Store(true)
	w.recheck()
	w.eventually("all are gone", func() bool { return len(w.deps.Registry.All()) == 0 })
	<-time.After(300 * time.Millisecond)
	for _, id := range w.ids("a") {
		if n := w.started(id); n != 1 {
			t.Errorf("%s was started %d times", id, n)
		}
	}
}

// Faults that may be the server's make for a probe, which all share, and for nothing else while it succeeds.
func TestFaultsOfManyWhileTheServerAnswersShutNoGate(t *testing.T) {
	const n, each = 200, 3
	var left sync.Map
	w := start(t, n, []string{"a"}, func(_ *fake, id projection.ID) error {
		if count, ok := left.Load(id); ok && count.(*atomic.Int64).Add(-1) >= 0 {
			return errAway
		}
		return nil
	})
	for _, id := range w.ids("a") {
		count := new(atomic.Int64)
		count.Store(each)
		left.Store(id, count)
	}
	pings, reloads := w.pings.Load(), w.reloads.Load()
	w.during("ping", func(*engine.Lease) { <-time.After(5 * time.Millisecond) }) // else none would find one under way
	w.append()
	w.caughtUp()
	if pings := w.pings.Load() - pings; pings == 0 || pings > n*each/2 {
		t.Errorf("%d probes for %d faults", pings, n*each)
	}
	if reloads := w.reloads.Load() - reloads; reloads > n*each {
		t.Errorf("%d leases were read again for %d faults", reloads, n*each)
	}
	if n := w.logs.FilterMessage("database unusable, all actors wait").Len(); n != 0 {
		t.Errorf("the gate was shut %d times", n)
	}
}
