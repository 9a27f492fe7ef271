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
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// fake is a store without a database: what is tried of it can be counted, and it can be away.
type fake struct {
	engine.Store // what the supervisor does not use

	tenants []string
	names   int
	head    atomic.Int64
	away    atomic.Bool

	pings, reloads, failed atomic.Int64
	// lost tells that other nodes have all leases by now.
	lost atomic.Bool
	// foreign tells that what is read concerns no projection.
	foreign atomic.Bool
	// hook, where it is set, is called in the middle of "reload" and "claim", with what is to be returned, "advance", "poll", "tail", "ping",
	// "command" and "release".
	hook atomic.Pointer[func(call string, lease *engine.Lease)]

	mu          sync.Mutex
	claimed     bool
	late        *engine.Lease // comes free, and may be claimed once
	checkpoints map[projection.ID]int64
	released    []engine.Advance
	// panics are the tenants whose next tail, and the projections whose next fault, makes an actor panic.
	panics map[string]bool
	// paused and taken are the rows of projections that are paused, and of those that other nodes hold by now; departs counts
	// how often the node departed.
	paused, taken map[int32]bool
	departs       atomic.Int64
}

var errAway = &engine.Fault{Class: engine.Infrastructure, Probe: true, Err: errors.New("the database is away")}

func (f *fake) here() error {
	if f.away.Load() {
		return errAway
	}
	return nil
}

func (f *fake) call(name string, lease *engine.Lease) {
	if hook := f.hook.Load(); hook != nil {
		(*hook)(name, lease)
	}
}

// panicOnce tells whether it is time to panic for name.
func (f *fake) panicOnce(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer delete(f.panics, name)
	return f.panics[name]
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

func (f *fake) Connect(context.Context, engine.Node) (engine.Session, error) {
	return fakeSession{f}, f.here()
}
func (f *fake) OnWake(func(string)) func()                       { return func() {} }
func (f *fake) Tenants(context.Context) ([]string, error)        { return f.tenants, f.here() }
func (f *fake) Ensure(context.Context, []string, []string) error { return f.here() }

func (f *fake) Free(_ context.Context, node engine.Node, _ bool) (free []engine.LeaseRef, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.claimed {
		for _, lease := range f.leases(node, f.tenants) {
			free = append(free, engine.LeaseRef{Row: lease.Row, ID: lease.ID})
		}
	}
	if f.late != nil {
		free = append(free, engine.LeaseRef{Row: f.late.Row, ID: f.late.ID})
	}
	return free, f.here()
}

func (f *fake) Counts(context.Context, []string) (counts []engine.Want, err error) {
	for name := range f.names {
		counts = append(counts, engine.Want{Name: fmt.Sprintf("p%03d", name), Leases: len(f.tenants)})
	}
	return counts, f.here()
}

func (f *fake) Claim(_ context.Context, node engine.Node, _ []int32, _ bool) ([]engine.Lease, error) {
	f.mu.Lock()
	if late := f.late; late != nil {
		f.late = nil
		f.mu.Unlock()
		f.call("claim", late)
		return []engine.Lease{*late}, nil
	}
	defer f.mu.Unlock()
	if f.claimed {
		return nil, f.here()
	}
	f.claimed = true
	return f.leases(node, f.tenants), nil
}

func (f *fake) AnnounceDrain(context.Context, engine.Node) error { return f.here() }

func (f *fake) SetFailed(context.Context, engine.Lease, string) error { return f.here() }

func (f *fake) Owned(_ context.Context, node engine.Node) ([]engine.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.claimed || f.lost.Load() {
		return nil, f.here()
	}
	var owned []engine.Lease
	for _, lease := range f.leases(node, f.tenants) {
		if lease.Checkpoint = f.checkpoints[lease.ID]; f.paused[lease.Row] {
			lease.Desired = engine.WantPause
		}
		if !f.taken[lease.Row] {
			owned = append(owned, lease)
		}
	}
	return owned, f.here()
}

func (f *fake) leases(node engine.Node, tenants []string) (leases []engine.Lease) {
	for _, tenant := range tenants {
		for _, name := range node.Projections {
			leases = append(leases, engine.Lease{Row: int32(len(leases) + 1), ID: projection.ID{Tenant: tenant, Name: name}, Owner: node.ID, Epoch: 1})
		}
	}
	return leases
}

func (f *fake) Leases(_ context.Context, rows []int32) (leases []engine.Lease, err error) {
	if err := f.here(); err != nil {
		f.failed.Add(int64(len(rows)))
		return nil, err
	}
	node := engine.Node{ID: "a node"}
	for i := range f.names {
		node.Projections = append(node.Projections, fmt.Sprintf("p%03d", i))
	}
	for _, lease := range f.leases(node, f.tenants) {
		if f.lost.Load() {
			lease.Owner = "another node"
		} else if !slices.Contains(rows, lease.Row) {
			continue
		}
		f.reloads.Add(1)
		lease.Checkpoint = f.checkpoint(lease.ID)
		f.call("reload", &lease)
		leases = append(leases, lease)
	}
	return leases, nil
}

func (f *fake) Release(_ context.Context, advances []engine.Advance) error {
	f.call("release", nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = append(f.released, advances...)
	for _, a := range advances {
		f.taken[a.Lease.Row] = true
	}
	return f.here()
}

func (f *fake) Advance(context.Context, []engine.Advance) (map[int32]bool, error) {
	f.call("advance", nil)
	return nil, f.here()
}
func (f *fake) Read(_ context.Context, _ string, r engine.ReadRange) (page engine.Page, err error) {
	page.To = r.UpTo
	for at := r.After + 1; at <= r.UpTo && !f.foreign.Load(); at++ {
		page.Events = append(page.Events, event.Envelope{Position: at})
	}
	return page, f.here()
}

func (f *fake) Tail(tenant string) engine.Tail {
	if f.panicOnce(tenant) {
		panic("a tail on purpose")
	}
	f.call("tail", nil)
	return fakeTail{f}
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

func (f *fake) Heads(_ context.Context, tenants []string) (engine.Heads, error) {
	heads := engine.Heads{Positions: make(map[string]int64)}
	for _, t := range tenants {
		heads.Positions[t] = f.head.Load()
	}
	return heads, f.here()
}

func (f *fake) Ping(context.Context) error {
	f.pings.Add(1)
	f.call("ping", nil)
	return f.here()
}

func (f *fake) Probe(ctx context.Context) error { return f.Ping(ctx) }

func (f *fake) Classify(err error) *engine.Fault {
	var fault *engine.Fault
	if errors.As(err, &fault) {
		if f.panicOnce(fault.Error()) {
			panic("a fault on purpose")
		}
		return fault
	}
	if errors.Is(err, projection.ErrLeaseLost) {
		return &engine.Fault{Class: engine.LeaseLost, Err: err}
	}
	return &engine.Fault{Class: engine.Infrastructure, Err: err}
}

type fakeTail struct{ *fake }

func (f fakeTail) ReadWithin(func(context.Context) (func(), error)) {}

func (f fakeTail) Poll(context.Context) (engine.TailUpdate, error) {
	head := f.head.Load()
	f.call("poll", nil)
	return engine.TailUpdate{Mark: head, From: head}, f.here()
}

type fakeSession struct{ *fake }

func (f fakeSession) Next(ctx context.Context) (engine.Notice, error) {
	<-ctx.Done()
	return engine.Notice{}, ctx.Err()
}
func (f fakeSession) Heartbeat(context.Context) error { return f.here() }
func (f fakeSession) ListPeers(context.Context) (engine.Fleet, error) {
	return engine.Fleet{}, f.here()
}
func (f fakeSession) MarkDead(context.Context, engine.Peer) (bool, error) { return false, f.here() }
func (f fakeSession) Pooled() bool                                        { return false }
func (f fakeSession) Deregister(context.Context) error {
	f.departs.Add(1)
	return nil
}
func (f fakeSession) Close(context.Context) error { return nil }

// world is a supervisor over a fake store.
type world struct {
	*fake
	t    *testing.T
	deps *actors.Deps
	sup  *Supervisor
	logs *observer.ObservedLogs
}

// start runs n projections of each tenant. apply is called for each batch before it is taken as committed.
func start(t *testing.T, n int, tenants []string, apply func(f *fake, id projection.ID) error) *world {
	t.Helper()
	f := &fake{tenants: tenants, names: n, checkpoints: make(map[projection.ID]int64), panics: make(map[string]bool),
		paused: make(map[int32]bool), taken: make(map[int32]bool)}
	core, logs := observer.New(zap.InfoLevel)
	node := engine.Node{ID: "a node", LeaseDuration: time.Hour}
	definitions := make(map[string]*engine.Definition)
	for i := range n {
		name := fmt.Sprintf("p%03d", i)
		node.Projections = append(node.Projections, name)
		definitions[name] = &engine.Definition{MaxEvents: 10, MaxBytes: 1000, Timeout: time.Minute,
			Apply: func(_ context.Context, lease engine.Lease, batch engine.Batch) error {
				if err := apply(f, lease.ID); err != nil {
					return err
				}
				f.move(lease.ID, batch.To)
				return nil
			}}
	}
	log := zap.New(core)
	deps := &actors.Deps{System: actors.NewSystem(log), Store: f, Log: log, Node: node, Definitions: definitions, Limiter: actors.NewLimiter(16, 0, 0, 0),
		Timing: actors.Timing{HeartbeatInterval: time.Minute, ListPeers: time.Minute, Confirm: time.Second, PollInterval: 20 * time.Millisecond, ReconcileInterval: 50 * time.Millisecond, AdvanceInterval: time.Second, QueryTimeout: 10 * time.Second, ReplayRest: time.Millisecond}}
	deps.Init()
	sup, err := Start(deps)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{fake: f, t: t, deps: deps, sup: sup, logs: logs}
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

// ids are the projections of some tenants.
func (w *world) ids(tenants ...string) (ids []projection.ID) {
	for _, lease := range w.leases(w.deps.Node, tenants) {
		ids = append(ids, lease.ID)
	}
	return ids
}

// recheck has the feeds of all tenants begin anew, and their projections read their leases.
func (w *world) recheck() {
	for _, tenant := range w.tenants {
		w.deps.System.Root.Send(w.child("feed "+tenant), &messages.Recheck{})
	}
}

func (w *world) append() { w.head.Add(1) }

// caughtUp waits until all projections have applied what there is.
func (w *world) caughtUp() {
	w.t.Helper()
	w.eventually("every projection has applied everything", func() bool {
		return !slices.ContainsFunc(w.ids(w.tenants...), func(id projection.ID) bool { return w.checkpoint(id) < w.head.Load() })
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

// started is how often the actor of a projection was started.
func (w *world) started(id projection.ID) int {
	return w.logs.FilterMessage("projection started").Filter(func(e observer.LoggedEntry) bool {
		fields := e.ContextMap()
		return fields["tenant"] == id.Tenant && fields["projection"] == id.Name
	}).Len()
}
