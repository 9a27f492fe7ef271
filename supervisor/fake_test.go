package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// fake is a store without a database. It counts what it is asked, and can be unreachable.
type fake struct {
	store.Driver // methods that are not called

	node    engine.Node
	tenants []string
	head    atomic.Int64
	away    atomic.Bool
	// foreign means that the projections select none of the events.
	foreign atomic.Bool
	// lost means that other nodes hold all leases.
	lost atomic.Bool
	// hook, if it is set, is called in "claim", "advance", "ping", "release", and in "search" or "search among dead
	// owners".
	hook atomic.Pointer[func(call string)]

	// pings counts the probes, reloads the leases that projections asked for, failed those that could not be read.
	pings, reloads, failed, deregistered atomic.Int64

	mu          sync.Mutex
	rows        []engine.Lease
	claimed     bool
	late        *engine.Lease // becomes free, and can be claimed once
	checkpoints map[projection.ID]int64
	released    []engine.Advance
	// paused are the rows of paused projections, taken those of leases that other nodes hold.
	paused, taken map[int32]bool
	// panics has the tenants whose next tail, and the texts of the errors whose next classification, panics.
	panics map[string]bool
}

var errAway = &faults.Fault{Class: faults.Infrastructure, Probe: true, Err: errors.New("the database is away")}

func (f *fake) here() error {
	if f.away.Load() {
		return errAway
	}
	return nil
}

func (f *fake) call(name string) {
	if hook := f.hook.Load(); hook != nil {
		(*hook)(name)
	}
}

func (f *fake) panicOnce(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics[name] {
		delete(f.panics, name)
		panic("on purpose")
	}
}

func (f *fake) checkpoint(id projection.ID) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.checkpoints[id]
}

func (f *fake) move(id projection.ID, to int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checkpoints[id] = to
}

// owned returns the leases as the database has them.
func (f *fake) owned() (owned []engine.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, lease := range f.rows {
		lease.Checkpoint = f.checkpoints[lease.ID]
		if f.paused[lease.Row] {
			lease.Desired = engine.WantPause
		}
		if f.taken[lease.Row] || f.lost.Load() {
			lease.Owner = "another node"
		}
		owned = append(owned, lease)
	}
	return owned
}

func (f *fake) Tenants(context.Context, []string) (tenants []engine.Tenant, err error) {
	for i, name := range f.tenants {
		tenants = append(tenants, engine.Tenant{Row: int32(i + 1), Name: name, State: tenancy.Active})
	}
	return tenants, f.here()
}
func (f *fake) Ensure(context.Context, []engine.NewProjection) (engine.LeftOut, error) {
	return engine.LeftOut{}, f.here()
}

// The control plane has no rows here.
func (f *fake) View(context.Context, func(store.View) error) error               { return f.here() }
func (f *fake) Fenced(context.Context, engine.Lease, func(store.Tx) error) error { return f.here() }

func (f *fake) AnnounceDrain(context.Context, engine.Node) error { return f.here() }
func (f *fake) Connect(context.Context, engine.Node) (engine.Session, error) {
	return fakeSession{f}, f.here()
}

func (f *fake) Free(_ context.Context, _ engine.Node, _, unowned bool) (free []engine.LeaseRef, err error) {
	if !unowned {
		f.call("search among dead owners")
		return nil, f.here()
	}
	f.call("search")
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.claimed {
		for _, lease := range f.rows {
			free = append(free, engine.LeaseRef{Row: lease.Row, ID: lease.ID})
		}
	}
	if f.late != nil {
		free = append(free, engine.LeaseRef{Row: f.late.Row, ID: f.late.ID})
	}
	return free, f.here()
}

func (f *fake) Counts(context.Context, []string, []string) (counts []engine.Want, err error) {
	for _, name := range f.node.Projections {
		counts = append(counts, engine.Want{Name: name, Leases: len(f.tenants)})
	}
	return counts, f.here()
}

func (f *fake) Claim(context.Context, engine.Node, []int32, bool) ([]engine.Lease, error) {
	f.mu.Lock()
	late, claimed := f.late, f.claimed
	f.late, f.claimed = nil, true
	f.mu.Unlock()
	if late != nil {
		f.call("claim")
		return []engine.Lease{*late}, nil
	}
	if claimed {
		return nil, f.here()
	}
	return f.rows, nil
}

func (f *fake) Owned(context.Context, engine.Node) ([]engine.Lease, error) {
	f.mu.Lock()
	if !f.claimed {
		f.mu.Unlock()
		return nil, f.here()
	}
	f.mu.Unlock()
	return slices.DeleteFunc(f.owned(), func(l engine.Lease) bool { return l.Owner != f.node.ID }), f.here()
}

func (f *fake) Leases(_ context.Context, rows []int32) ([]engine.Lease, error) {
	if err := f.here(); err != nil {
		f.failed.Add(int64(len(rows)))
		return nil, err
	}
	f.reloads.Add(int64(len(rows)))
	return slices.DeleteFunc(f.owned(), func(l engine.Lease) bool { return !slices.Contains(rows, l.Row) }), nil
}

func (f *fake) Release(_ context.Context, advances []engine.Advance) error {
	f.call("release")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = append(f.released, advances...)
	for _, a := range advances {
		f.taken[a.Lease.Row] = true
	}
	return f.here()
}

func (f *fake) Advance(context.Context, []engine.Advance) (map[int32]bool, error) {
	f.call("advance")
	return nil, f.here()
}

func (f *fake) Orders(context.Context, engine.Node, []int32) (map[int32]engine.Orders, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	orders := make(map[int32]engine.Orders)
	for row := range f.paused {
		orders[row] = engine.Orders{Desired: engine.WantPause}
	}
	return orders, f.here()
}

func (f *fake) Read(_ context.Context, _ string, r engine.ReadRange) (page engine.Page, err error) {
	page.To = r.UpTo
	for at := r.After + 1; at <= r.UpTo && !f.foreign.Load(); at++ {
		page.Events = append(page.Events, event.Envelope{Position: at})
	}
	return page, f.here()
}

func (f *fake) Heads(_ context.Context, tenants []string) (engine.Heads, error) {
	heads := engine.Heads{Positions: make(map[string]int64)}
	for _, t := range tenants {
		heads.Positions[t] = f.head.Load()
	}
	return heads, f.here()
}

func (f *fake) Ping(context.Context) error { return f.here() }

func (f *fake) Probe(context.Context) error {
	f.pings.Add(1)
	f.call("ping")
	return f.here()
}

func (f *fake) Classify(err error) *faults.Fault {
	f.panicOnce(err.Error())
	var fault *faults.Fault
	switch {
	case errors.As(err, &fault):
		return fault
	case errors.Is(err, projection.ErrLeaseLost):
		return &faults.Fault{Class: faults.LeaseLost, Err: err}
	}
	return &faults.Fault{Class: faults.Infrastructure, Err: err}
}

type fakeTail struct{ *fake }

// unfollowed are the followers of a store that has none.
type unfollowed struct{}

func (unfollowed) Followed(string) bool { return false }

func (unfollowed) Advanced(string, *engine.Tail) {}

func (unfollowed) Gone(string) {}

func (f *fake) Followers() engine.Followers { return unfollowed{} }

func (f *fake) TailPoller(tenant string) engine.TailPoller {
	f.panicOnce(tenant)
	return fakeTail{f}
}

func (f fakeTail) ReadWithin(engine.ReadSlot) {}

func (fakeTail) Take(*engine.Page) (engine.TailUpdate, bool) { return engine.TailUpdate{}, false }

func (f fakeTail) Poll(context.Context) (engine.TailUpdate, error) {
	head := f.head.Load()
	return engine.TailUpdate{Mark: head, From: head}, f.here()
}

type fakeSession struct{ *fake }

func (f fakeSession) Next(ctx context.Context) (engine.Notice, error) {
	<-ctx.Done()
	return engine.Notice{}, ctx.Err()
}

func (f fakeSession) Heartbeat(context.Context, *engine.NodeSummary) error { return f.here() }
func (f fakeSession) ListPeers(context.Context) (engine.Fleet, error) {
	return engine.Fleet{}, f.here()
}
func (f fakeSession) MarkDead(context.Context, engine.Peer) (bool, error) { return false, f.here() }
func (f fakeSession) Pooled() bool                                        { return false }
func (f fakeSession) Close(context.Context) error                         { return nil }

func (f fakeSession) Deregister(context.Context) error {
	f.deregistered.Add(1)
	return nil
}

// world is a supervisor over a fake store.
type world struct {
	*fake
	t    *testing.T
	deps *actors.Deps
	sup  *Supervisor
	logs *observer.ObservedLogs
	seen *seen
}

// seen is what the observer of the runtime got.
type seen struct {
	mu        sync.Mutex
	restarts  []observe.Restart
	databases []observe.Database
	leases    map[projection.ID][]observe.LeaseChange
}

func (s *seen) observer() observe.Observer {
	return observe.Observer{
		ActorRestarted: func(r observe.Restart) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.restarts = append(s.restarts, r)
		},
		LeaseChanged: func(l observe.Lease) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.leases[l.Projection] = append(s.leases[l.Projection], l.Change)
		},
		DatabaseChanged: func(d observe.Database) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.databases = append(s.databases, d)
		},
	}
}

func (s *seen) changes(id projection.ID) []observe.LeaseChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.leases[id])
}

func (s *seen) get() ([]observe.Restart, []observe.Database) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.restarts), slices.Clone(s.databases)
}

// start runs n projections of each tenant. apply, if it is not nil, is called for each batch before it is committed.
func start(t *testing.T, n int, tenants []string, apply func(id projection.ID) error) *world {
	t.Helper()
	return startSearching(t, 50*time.Millisecond, n, tenants, apply)
}

// startSearching is start with a time between the periodic searches for free leases.
func startSearching(t *testing.T, interval time.Duration, n int, tenants []string,
	apply func(id projection.ID) error) *world {
	t.Helper()
	f := &fake{tenants: tenants, node: engine.Node{ID: "a node", LeaseDuration: time.Hour},
		checkpoints: make(map[projection.ID]int64),
		panics:      make(map[string]bool), paused: make(map[int32]bool), taken: make(map[int32]bool)}
	definitions := make(map[string]*engine.Definition)
	for i := range n {
		name := fmt.Sprintf("p%03d", i)
		f.node.Projections = append(f.node.Projections, name)
		definitions[name] = &engine.Definition{MaxEvents: 10, MaxBytes: 1000, Timeout: time.Minute,
			Batches: engine.Batches{Apply: func(_ context.Context, lease engine.Lease, batch engine.Batch) error {
				if apply != nil {
					if err := apply(lease.ID); err != nil {
						return err
					}
				}
				f.move(lease.ID, batch.To)
				return f.here()
			}}}
	}
	for _, id := range f.ids(tenants...) {
		f.rows = append(f.rows, engine.Lease{Row: int32(len(f.rows) + 1), ID: id, Owner: f.node.ID, Epoch: 1})
	}
	core, logs := observer.New(zap.DebugLevel)
	log := zap.New(core)
	observed := &seen{leases: make(map[projection.ID][]observe.LeaseChange)}
	deps := &actors.Deps{Observer: observed.observer(), System: actors.NewSystem(log), Store: actors.StoreOf(f),
		Log: log, Node: f.node, Definitions: definitions,
		Limiter: actors.NewLimiter(actors.Limits{Connections: 16}),
		Timing: actors.Timing{HeartbeatInterval: time.Minute, ListPeers: time.Minute, Confirm: time.Second,
			PollInterval:      20 * time.Millisecond,
			ReconcileInterval: interval, AdvanceInterval: time.Second, QueryTimeout: 10 * time.Second,
			ReplayRest: time.Millisecond}}
	deps.Init()
	sup, err := Start(deps)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{fake: f, t: t, deps: deps, sup: sup, logs: logs, seen: observed}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sup.Stop(ctx, time.Second); err != nil {
			t.Error(err)
		}
		deps.Wait()
	})
	w.append()
	w.caughtUp()
	return w
}

// ids returns the projections of some tenants.
func (f *fake) ids(tenants ...string) (ids []projection.ID) {
	for _, tenant := range tenants {
		for _, name := range f.node.Projections {
			ids = append(ids, projection.ID{Tenant: tenant, Name: name})
		}
	}
	return ids
}

func (w *world) send(to string, msg any) { w.deps.System.Root.Send(w.child(to), msg) }

// recheck has the feeds of all tenants begin anew, and their projections read their leases.
func (w *world) recheck() {
	for _, tenant := range w.tenants {
		w.send("feed "+tenant, &messages.Recheck{})
	}
}

func (w *world) append() { w.head.Add(1) }

// panicAt makes the next call of panicOnce with that name panic.
func (w *world) panicAt(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.panics[name] = true
}

// caughtUp waits until all projections have applied all events.
func (w *world) caughtUp() {
	w.t.Helper()
	w.eventually("every projection has applied everything", func() bool {
		return !slices.ContainsFunc(w.ids(w.tenants...),
			func(id projection.ID) bool { return w.checkpoint(id) < w.head.Load() })
	})
}

func (w *world) eventually(what string, cond func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			w.t.Fatalf("never: %s", what)
		}
	}
}

// started counts the starts of a projection's actor.
func (w *world) started(id projection.ID) int {
	return w.logs.FilterMessage("projection started").FilterField(zap.String("tenant", id.Tenant)).
		FilterField(zap.String("projection", id.Name)).Len()
}

// mustHaveStarted checks how often the actors of these projections were started.
func (w *world) mustHaveStarted(times int, ids ...projection.ID) {
	w.t.Helper()
	for _, id := range ids {
		if n := w.started(id); n != times {
			w.t.Errorf("%s was started %d times, want %d", id, n, times)
		}
	}
}
