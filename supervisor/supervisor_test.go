package supervisor

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
)

func TestProjectionsShareOneProbeWhileTheDatabaseIsUnreachable(t *testing.T) {
	const n = 300
	w := start(t, n, []string{"a"}, nil)
	w.away.Store(true)
	began := time.Now()
	w.recheck()
	w.append()
	w.eventually("every projection has met the outage", func() bool { return w.failed.Load() >= n })
	w.eventually("several probes", func() bool { return w.pings.Load() >= 7 })
	// Probes come after 50 ms, doubling up to 0.5 s, each up to 30 % sooner.
	if pings, took := w.pings.Load(), time.Since(began); float64(pings) > 8+took.Seconds()/0.35 {
		t.Errorf("%d probes in %v", pings, took)
	}
	// A projection may have asked before the gate closed, and again after a delay.
	if failed := w.failed.Load(); failed > n+n/10 {
		t.Errorf("%d projections tried %d times", n, failed)
	}
	before := w.reloads.Load()
	w.away.Store(false)
	w.caughtUp()
	// The gate reads all leases by one statement.
	if again := w.reloads.Load() - before; again > 0 {
		t.Errorf("%d projections read their leases by themselves", again)
	}
	if _, d := w.seen.get(); len(d) != 2 || d[0].Usable || d[0].Err == nil || !d[1].Usable || d[1].Outage <= 0 {
		t.Errorf("the observer saw %+v", d)
	}
	pings := w.pings.Load()
	w.append()
	w.caughtUp()
	if w.pings.Load() != pings {
		t.Error("there are probes although the database is back")
	}
}

func TestCrashOfAProjectionsActorDisturbsNoOther(t *testing.T) {
	victim := projection.ID{Tenant: "a", Name: "p003"}
	w := start(t, 10, []string{"a", "b"}, nil)
	w.panicAt("special")
	w.send(victim.String(), &messages.LeaseRead{Err: errors.New("special")})
	w.eventually("it is restarted", func() bool { return w.started(victim) == 2 })
	w.append()
	w.caughtUp()
	others := slices.DeleteFunc(w.ids("a", "b"), func(id projection.ID) bool { return id == victim })
	w.mustHaveStarted(1, others...)
	if n := w.crashes(); n != 1 {
		t.Errorf("the crash was logged %d times", n)
	}
	if r, _ := w.seen.get(); len(r) != 1 || r[0].Kind != observe.ActorProjection || r[0].Projection != victim ||
		r[0].Stuck || r[0].Err == nil {
		t.Errorf("the observer saw %+v", r)
	}
}

func TestCrashOfAFeedDisturbsItsTenantAlone(t *testing.T) {
	w := start(t, 5, []string{"a", "b"}, nil)
	w.panicAt("a")
	w.recheck()
	w.eventually("the tenant's projections are restarted", func() bool {
		return !slices.ContainsFunc(w.ids("a"), func(id projection.ID) bool { return w.started(id) != 2 })
	})
	w.append()
	w.caughtUp()
	w.mustHaveStarted(1, w.ids("b")...)
	want := projection.ID{Tenant: "a"}
	if r, _ := w.seen.get(); len(r) != 1 || r[0].Kind != observe.ActorFeed || r[0].Projection != want || r[0].Stuck ||
		r[0].Err == nil {
		t.Errorf("the observer saw %+v", r)
	}
}

func TestCrashOfTheSupervisorEndsTheRuntimeWithTheReason(t *testing.T) {
	w := start(t, 3, []string{"a"}, nil)
	w.deps.System.Root.Send(w.sup.pid, &messages.AskGate{}) // without a sender
	select {
	case <-w.sup.Done():
	case <-time.After(time.Minute):
		t.Fatal("the runtime goes on without its supervisor")
	}
	if w.sup.Err() == nil {
		t.Error("there is no reason")
	}
}

func TestStopReleasesEveryLeaseOnceAndMayBeCalledAgain(t *testing.T) {
	w := start(t, 20, []string{"a", "b"}, nil)
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
	seen := make(map[int32]bool)
	for _, a := range w.released {
		seen[a.Lease.Row] = true
		if a.To != w.head.Load() {
			t.Errorf("%s was released at %d, want %d", a.Lease.ID, a.To, w.head.Load())
		}
	}
	if len(seen) != 40 || len(w.released) != 40 {
		t.Errorf("%d leases were released %d times, want 40", len(seen), len(w.released))
	}
}

// A logger may end with its user, as that of a test does.
func TestNothingIsLoggedAfterTheEnd(t *testing.T) {
	const grace = 100 * time.Millisecond
	w := start(t, 3, []string{"a"}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.sup.Stop(ctx, grace); err != nil {
		t.Fatal(err)
	}
	w.deps.Wait()
	before := w.logs.Len()
	<-time.After(3 * grace)
	for _, line := range w.logs.All()[before:] {
		t.Errorf("%s %v", line.Message, line.Context)
	}
}

func TestLeaseThatIsBeingClaimedDuringTheStopIsReleased(t *testing.T) {
	w := start(t, 3, []string{"a"}, nil)
	claiming, let := make(chan struct{}), make(chan struct{})
	w.during("claim", func() {
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
	w.eventually("the others are released", func() bool { return released(3) })
	close(let)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if !released(4) || !reflect.DeepEqual(w.released[3].Lease, late) {
		t.Errorf("released: %+v", w.released)
	}
}

// The projection is renamed after its free lease was listed, and before it is claimed.
func TestLeaseOfARenamedProjectionIsReleased(t *testing.T) {
	w := start(t, 3, []string{"a"}, nil)
	late := engine.Lease{Row: 99, ID: projection.ID{Tenant: "b", Name: "p001"}, Owner: "a node", Epoch: 1}
	w.during("claim", func() { late.ID.Name = "renamed" })
	w.mu.Lock()
	w.late = &late
	w.mu.Unlock()
	w.eventually("it is released", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.released) == 1 && w.released[0].Lease.Row == 99
	})
	if n := w.logs.FilterMessageSnippet("not registered").Len(); n != 0 {
		t.Error("the supervisor was asked to run it")
	}
}

func TestProjectionThatLostItsLeaseIsNotRestarted(t *testing.T) {
	w := start(t, 20, []string{"a"}, nil)
	w.lost.Store(true)
	w.recheck()
	w.eventually("all are gone", func() bool { return len(w.deps.Registry.Summary().States) == 0 })
	<-time.After(300 * time.Millisecond)
	for _, id := range w.ids("a") {
		if w.child(id.String()) != nil {
			t.Errorf("%s was restarted", id)
		}
	}
}

// Faults that may be the server's share probes. If those succeed nothing else follows.
func TestFaultsDoNotCloseTheGateWhileTheServerAnswers(t *testing.T) {
	const n, each = 200, 3
	var left sync.Map
	w := start(t, n, []string{"a"}, func(id projection.ID) error {
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
	w.during("ping", func() { <-time.After(5 * time.Millisecond) }) // so that others ask meanwhile
	w.append()
	w.caughtUp()
	if pings := w.pings.Load() - pings; pings == 0 || pings > n*each/2 {
		t.Errorf("%d probes for %d faults", pings, n*each)
	}
	// the node may read leases for another reason; the gate would read all again
	if reloads := w.reloads.Load() - reloads; reloads > n*each+n/2 {
		t.Errorf("%d leases were read again for %d faults", reloads, n*each)
	}
	if n := w.logs.FilterMessage("database unusable, all actors wait").Len(); n != 0 {
		t.Errorf("the gate closed %d times", n)
	}
}
