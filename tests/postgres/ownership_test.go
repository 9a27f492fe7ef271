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

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// several are projections that record what they apply.
func several(names ...string) (projections []millrace.Projection) {
	for _, name := range names {
		projections = append(projections, millrace.Projection{Name: name, Handler: pgstore.Batch(record(name))})
	}
	return projections
}

// another makes a runtime over a store of its own, as another process has it.
func (b *bundle) another(config millrace.Config, projections ...millrace.Projection) *millrace.Runtime {
	b.t.Helper()
	store, err := pgstore.Open(b.ctx, b.dsn, pgstore.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(store.Close)
	config.Store = store
	return b.runtime(config, projections...)
}

// owners are the nodes that are alive and hold leases, with how many each holds; free are the leases that none of them
// holds.
func (b *bundle) owners(rt *millrace.Runtime) (held map[string]int, free int) {
	b.t.Helper()
	status, err := rt.Status(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	held = make(map[string]int)
	for _, n := range status.Nodes {
		if n.Alive {
			held[n.ID] = 0
		}
	}
	for _, p := range status.Projections {
		if _, alive := held[p.Owner]; alive {
			held[p.Owner]++
		} else {
			free++
		}
	}
	return held, free
}

// balanced tells whether that many nodes share all leases, none of them with more than one lease above another's.
func (b *bundle) balanced(rt *millrace.Runtime, nodes int) bool {
	held, free := b.owners(rt)
	least, most := 1<<30, 0
	for _, n := range held {
		least, most = min(least, n), max(most, n)
	}
	return len(held) == nodes && free == 0 && most > 0 && most-least <= 1
}

func (b *bundle) epochs() (sum int64) {
	b.t.Helper()
	if err := b.store.Pool().QueryRow(b.ctx, "select coalesce(sum(epoch), 0)::bigint from millrace.leases").Scan(&sum); err != nil {
		b.t.Fatal(err)
	}
	return sum
}

// flow appends one event after another until the test ends or it is stopped, and returns the last position then.
func (b *bundle) flow() (stop func() int64) {
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan int64, 1)
	go func() {
		var last int64
		defer func() { done <- last }()
		for i := 0; ctx.Err() == nil; i++ {
			result, err := b.store.Append(b.ctx, fmt.Sprint("s", i%17), event.Any, event.Event{Type: "counted"})
			if err != nil {
				b.t.Errorf("append: %v", err)
				return
			}
			last = result.Positions[0]
			select {
			case <-time.After(2 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	b.t.Cleanup(cancel)
	return func() int64 {
		cancel()
		return <-done
	}
}

func TestNodesShareProjectionsAsTheyComeAndGo(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	for _, name := range []string{"x", "y"} {
		if _, err := b.store.CreateTenant(b.ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"p", "q", "r", "s"}
	nodes := make([]*millrace.Runtime, 3)
	stops := make([]func(), 3)
	stopFlow := b.flow()
	for i := range nodes {
		nodes[i] = b.another(millrace.Config{}, several(names...)...)
		stops[i] = b.start(nodes[i])
		b.eventually(fmt.Sprint(i+1, " nodes share all"), func() bool { return b.balanced(nodes[0], i+1) })
	}
	// Once at rest, nothing moves any more.
	before := b.epochs()
	<-time.After(time.Second)
	if after := b.epochs(); after != before {
		t.Errorf("%d claims while nobody came or went", after-before)
	}
	stops[1]()
	b.eventually("two nodes share all", func() bool { return b.balanced(nodes[0], 2) })
	// Twelve leases were claimed first; the second node took six of them, the third four, and the one that left had four.
	if moves := b.epochs(); moves != 12+6+4+4 {
		t.Errorf("%d claims, want 26", moves)
	}
	last := stopFlow()
	for _, name := range names {
		if err := nodes[0].WaitFor(b.ctx, millrace.ProjectionID{Name: name}, last); err != nil {
			t.Fatal(err)
		}
		b.verify(name)
	}
	if status, err := nodes[0].Status(b.ctx); err != nil || status.NotOwned != 0 {
		t.Errorf("%d projections not owned, %v", status.NotOwned, err)
	}
}

func TestFewProjectionsOnThreeNodesLeaveNoneIdle(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	for range 3 {
		b.start(b.another(millrace.Config{}, several("p", "q", "r", "s")...))
	}
	watcher := b.runtime(millrace.Config{}, several("p")...)
	b.eventually("each node has one", func() bool { return b.balanced(watcher, 3) })
}

func TestNodesOfTwoVersionsRunWhatTheyKnow(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	old := b.another(millrace.Config{LeaseDuration: 2 * time.Second, HeartbeatInterval: 500 * time.Millisecond}, several("kept", "gone")...)
	stopOld := b.start(old)
	b.eventually("the old node runs both", func() bool { return b.balanced(old, 1) })
	rt := b.another(millrace.Config{LeaseDuration: 2 * time.Second, HeartbeatInterval: 500 * time.Millisecond}, several("kept", "new")...)
	b.start(rt)
	last := b.append("a", 10).Positions[9]
	for _, name := range []string{"kept", "gone", "new"} {
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: name}, last); err != nil {
			t.Fatal(err)
		}
		b.verify(name)
	}
	if owner := b.status(rt, "new").Owner; owner != func() string { s, _ := rt.Status(b.ctx); return s.Node }() {
		t.Errorf("new is run by %q", owner)
	}
	stopOld()
	b.eventually("what nobody knows any more is named", func() bool {
		gone := b.status(rt, "gone")
		return gone.State == millrace.StateNotOwned && gone.Reason != "" && gone.NotOwned > 0
	})
	b.eventually("it is counted once it was not owned for longer than a lease", func() bool {
		status, err := rt.Status(b.ctx)
		return err == nil && status.NotOwned == 1
	})
	if kept := b.status(rt, "kept"); kept.State == millrace.StateNotOwned {
		t.Errorf("%+v", kept)
	}
}

// blockable is a handler that waits, once it is told to, until it is let go.
type blockable struct {
	armed   atomic.Bool
	entered chan struct{}
	release chan struct{}
}

func newBlockable() *blockable {
	return &blockable{entered: make(chan struct{}, 100), release: make(chan struct{})}
}

func (h *blockable) handle(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
	if h.armed.Load() {
		h.entered <- struct{}{}
		select {
		case <-h.release:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return recordIn(ctx, tx, "slow", events)
}

// A move waits for the batch that is under way, and no other projection of the node waits with it.
func TestMoveIsGentle(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	slow := newBlockable()
	first := b.another(millrace.Config{}, append(several("a", "b", "c"), millrace.Projection{Name: "slow", Handler: pgstore.Batch(slow.handle)})...)
	b.start(first)
	b.eventually("the first node runs all", func() bool { return b.balanced(first, 1) })
	slow.armed.Store(true)
	b.append("s", 5)
	<-slow.entered
	second := b.another(millrace.Config{}, append(several("a", "b", "c"), millrace.Projection{Name: "slow", Handler: pgstore.Batch(slow.handle)})...)
	stopSecond := b.start(second)
	moved := func() int {
		held, _ := b.owners(second)
		status, _ := second.Status(b.ctx)
		return held[status.Node]
	}
	b.eventually("what is not busy moves", func() bool { return moved() > 0 })
	if owner := b.status(first, "slow").Owner; owner != func() string { s, _ := first.Status(b.ctx); return s.Node }() {
		t.Errorf("the batch under way lost its lease to %q", owner)
	}
	slow.armed.Store(false)
	close(slow.release)
	b.eventually("two nodes share all", func() bool { return b.balanced(first, 2) })
	stopSecond()
	last := b.append("s", 5).Positions[4]
	for _, name := range []string{"a", "b", "c", "slow"} {
		if err := first.WaitFor(b.ctx, millrace.ProjectionID{Name: name}, last); err != nil {
			t.Fatal(err)
		}
		b.verify(name)
	}
}

// The lease of a projection that is at rest is not kept by another one whose batch takes its time.
func TestLeavingNodeGivesEachLeaseBackAsItComesToRest(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	slow := newBlockable()
	first := b.another(millrace.Config{}, append(several("a", "b", "c"), millrace.Projection{Name: "slow", Handler: pgstore.Batch(slow.handle)})...)
	stop := b.start(first)
	b.eventually("the first node runs all", func() bool { return b.balanced(first, 1) })
	slow.armed.Store(true)
	b.append("s", 5)
	<-slow.entered
	second := b.another(millrace.Config{}, several("a", "b", "c")...)
	b.start(second)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop()
	}()
	b.eventually("the other node runs all but what is busy", func() bool {
		held, _ := b.owners(second)
		status, _ := second.Status(b.ctx)
		return held[status.Node] == 3
	})
	select {
	case <-ended:
		t.Error("the first node ended while its batch was under way")
	default:
	}
	close(slow.release)
	<-ended
	if p := b.status(second, "slow"); p.State != millrace.StateNotOwned || p.Checkpoint != 5 {
		t.Errorf("%+v", p)
	}
}

func TestAnyProcessControlsAProjectionAlsoInBackoff(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	fails := millrace.Projection{Name: "p", Retry: projection.RetryPolicy{MaxAttempts: 101, Base: time.Hour, Cap: time.Hour},
		Handler: pgstore.Batch(func(context.Context, pgx.Tx, []event.Envelope) error { return errors.New("not today") })}
	owner := b.another(millrace.Config{ReconcileInterval: time.Hour}, fails)
	b.start(owner)
	remote := b.runtime(millrace.Config{}, several("other")...) // it only watches and commands
	id := millrace.ProjectionID{Name: "p"}
	last := b.append("s", 1).Positions[0]
	is := func(state millrace.State) func() bool {
		return func() bool { return b.status(remote, "p").State == state }
	}
	b.eventually("it waits, as anybody can see", is(millrace.StateWaiting))
	if p := b.status(remote, "p"); p.FailingPosition != last || p.Attempts != 1 || p.Reason == "" {
		t.Errorf("%+v", p)
	}
	for _, step := range []struct {
		command func(context.Context, millrace.ProjectionID) error
		state   millrace.State
		waiting error
		// attempts is how many there were in the end: resumed, it is tried at once, and not after the hour.
		attempts int
	}{
		{remote.Pause, millrace.StatePaused, projection.ErrPaused, 1},
		{remote.Resume, millrace.StateWaiting, nil, 2},
		{remote.Pause, millrace.StatePaused, projection.ErrPaused, 2},
		{remote.Resume, millrace.StateWaiting, nil, 3},
	} {
		if err := step.command(b.ctx, id); err != nil {
			t.Fatal(err)
		}
		b.eventually("it is "+string(step.state), is(step.state))
		b.eventually("its owner is as it should be", func() bool {
			p := b.status(remote, "p")
			return (p.Owner == "") == (step.state == millrace.StatePaused) && p.Attempts == step.attempts
		})
		if step.waiting != nil {
			if err := remote.WaitFor(b.ctx, id, last); !errors.Is(err, step.waiting) {
				t.Errorf("waiting while it is %s: %v", step.state, err)
			}
		}
	}
}

func TestWhyAProjectionFailedIsKnownEverywhereUntilItIsMended(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	owner := b.another(millrace.Config{PollInterval: 50 * time.Millisecond}, several("p")...)
	b.start(owner)
	id := millrace.ProjectionID{Name: "p"}
	last := b.append("a", 10).Positions[9]
	remote := b.runtime(millrace.Config{}, several("other")...)
	if err := owner.WaitFor(b.ctx, id, last); err != nil {
		t.Fatal(err)
	}
	b.exec("create table lost as select * from millrace_default.events where global_seq > 4")
	b.exec("delete from millrace_default.events where global_seq > 4")
	b.eventually("others see that it failed", func() bool { return b.status(remote, "p").State == millrace.StateFailed })
	if p := b.status(remote, "p"); p.Reason == "" {
		t.Errorf("no reason: %+v", p)
	}
	if err := remote.WaitFor(b.ctx, id, last+1); !errors.Is(err, projection.ErrFailed) {
		t.Errorf("waiting for a failed projection: %v", err)
	}
	b.exec("insert into millrace_default.events overriding system value select * from lost")
	if err := remote.Resume(b.ctx, id); err != nil {
		t.Fatal(err)
	}
	b.eventually("others see that it was mended", func() bool { return b.status(remote, "p").State == millrace.StateElsewhere })
	if err := remote.WaitFor(b.ctx, id, b.append("a", 1).Positions[0]); err != nil {
		t.Fatal(err)
	}
	b.verify("p")
}

// A node whose session was ended is not taken for dead as long as it comes back in time, by those that saw its lock.
func TestLostSessionMovesNoLease(t *testing.T) {
	b := setup(t, pgstore.Options{})
	patient := millrace.Config{LeaseDuration: 30 * time.Second, FailureDetection: 20 * time.Second, ReconcileInterval: 500 * time.Millisecond}
	nodes := []*millrace.Runtime{b.another(patient, several("p", "q", "r")...), b.another(patient, several("p", "q", "r")...)}
	for _, rt := range nodes {
		b.start(rt)
	}
	// They began at the same time, and each may still see itself alone when they first share evenly: so two looks without a
	// move are waited for.
	var before int64
	for since := time.Now(); time.Since(since) < 2*patient.ReconcileInterval; {
		b.eventually("both share", func() bool { return b.balanced(nodes[0], 2) })
		if now := b.epochs(); now != before {
			before, since = now, time.Now()
		}
	}
	connected := func() bool {
		return !slices.ContainsFunc(nodes, func(rt *millrace.Runtime) bool {
			status, err := rt.Status(b.ctx)
			return err != nil || !status.Session.Connected
		})
	}
	for range 5 {
		b.exec(`select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and query like 'insert into "millrace".nodes%'
			or datname = current_database() and wait_event = 'ClientRead' and query like '%pg_locks%'`)
		b.eventually("the sessions stand again", connected)
	}
	<-time.After(time.Second)
	if after := b.epochs(); after != before || !b.balanced(nodes[0], 2) {
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
		handler := record("p")
		return b.another(config, millrace.Projection{Name: "p", Handler: pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			late[i].Store(time.Now().UnixNano())
			return handler(ctx, tx, events)
		})})
	}
	first := node(0)
	b.start(first)
	stopFlow := b.flow()
	b.eventually("the first node handles events", func() bool { return late[0].Load() > 0 })
	id := b.status(first, "p").Owner
	second := node(1)
	b.start(second)
	b.eventually("both are alive", func() bool { held, _ := b.owners(first); return len(held) == 2 })
	// Before the row is locked, so that the other node can look at it, and bury its node.
	b.exec(`create function public.late() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return new; end $$`)
	b.exec(fmt.Sprintf(`create trigger late before insert on millrace.nodes for each row when (new.id = '%s') execute function public.late()`, id))
	b.eventually("the first node rests", func() bool {
		p := b.status(first, "p")
		return p.Owner != id || p.State == millrace.StateWaiting && strings.Contains(p.Reason, "no heartbeat")
	})
	b.eventually("the second node goes on", func() bool { return late[1].Load() > 0 })
	var expired time.Time
	if err := b.store.Pool().QueryRow(b.ctx, "select expires_at from millrace.nodes where id = $1", id).Scan(&expired); err != nil {
		t.Fatal(err)
	}
	if last := time.Unix(0, late[0].Load()); !last.Before(expired) {
		t.Errorf("the first node called its handler %v after its lease had ended", last.Sub(expired))
	}
	if next := time.Unix(0, late[1].Load()); next.Before(expired) {
		t.Errorf("the second node called its handler %v before the lease of the first had ended", expired.Sub(next))
	}
	if err := second.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, stopFlow()); err != nil {
		t.Fatal(err)
	}
	b.verify("p")
}
