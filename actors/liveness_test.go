package actors

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

func TestLongWaitForASlotIsNeitherFaultNorWork(t *testing.T) {
	o := surround(t)
	o.deps.Timing.QueryTimeout = time.Millisecond
	o.def.Timeout = time.Millisecond
	release := o.takeSlot()
	p := o.projection()
	o.send(p, &messages.TailAdvanced{Mark: 1, Events: envelopes(1), Asked: time.Now()})
	o.eventually("it waits for a slot", func() bool { return o.entry().Queued })
	<-time.After(200 * time.Millisecond) // forty times as long as the work may take
	if e := o.entry(); !e.Queued || !e.Busy.IsZero() || e.Reason != nil {
		t.Errorf("while it waits for a slot: %+v", e)
	}
	release()
	o.mustApply(1)
	o.eventually("it is done", func() bool { e := o.entry(); return !e.Queued && e.Busy.IsZero() })
	for len(o.heard) > 0 {
		if fault, ok := (<-o.heard).(*messages.AskGate); ok {
			t.Errorf("a fault was reported: %v", fault.Fault)
		}
	}
}

func TestProjectionThatStopsNoLongerWaitsForASlot(t *testing.T) {
	o := surround(t)
	release := o.takeSlot()
	defer release()
	p := o.projection()
	o.send(p, &messages.TailAdvanced{Mark: 1, Events: envelopes(1), Asked: time.Now()})
	o.eventually("it waits for a slot", func() bool { return o.entry().Queued })
	_ = o.deps.System.Root.StopFuture(p).Wait()
	left := make(chan struct{})
	go func() { defer close(left); o.deps.Wait() }()
	select {
	case <-left:
	case <-time.After(hangs):
		t.Error("it still waits for a slot")
		o.deps.Refuse()
	}
	if e, here := o.deps.Registry.Get(o.lease.ID); here {
		t.Errorf("it is still registered: %+v", e)
	}
}

// A slot may become free at the moment at which the projection is stopped.
func TestSlotAfterTheEndOfAProjectionRegistersNothing(t *testing.T) {
	o := surround(t)
	w := &worker{fed: &intake{}, deps: o.deps, def: o.def, id: o.lease.ID}
	o.in(func(ctx actor.Context) {
		w.run(ctx, task{time.Minute, func(context.Context) (func(), error) {
			o.deps.Registry.withdraw(o.lease.ID)
			return func() {}, nil
		}, func(context.Context) machine.Result { return machine.OK{} }}, nil)
	})
	receive(o, o.heard) // the result of the work
	if e, here := o.deps.Registry.Get(o.lease.ID); here {
		t.Errorf("it is registered: %+v", e)
	}
}

func TestEventsThatAreNotNeededSoonAreFreed(t *testing.T) {
	for name, begin := range map[string]func(o *outside, page []event.Envelope){
		"handled from the tail": func(o *outside, page []event.Envelope) {
			o.send(o.projection(), &messages.TailAdvanced{Mark: 3, Events: page, Asked: time.Now()})
			o.mustApply(1, 2, 3)
		},
		"handled from a read of its own": func(o *outside, page []event.Envelope) {
			o.store.change(func(m *memory) { m.events = page })
			o.send(o.projection(), &messages.TailAdvanced{Mark: 3, From: 3})
			o.mustApply(1, 2, 3)
			o.store.change(func(m *memory) { m.events = nil })
		},
		"halted": func(o *outside, page []event.Envelope) {
			o.lease.Halted, o.lease.Failed = true, "halted"
			o.send(o.projection(), &messages.TailAdvanced{Mark: 3, Events: page, Asked: time.Now()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := surround(t)
			body := func() weak.Pointer[byte] {
				page := envelopes(3)
				page[2].Body = make([]byte, 1<<16)
				begin(o, page)
				return weak.Make(&page[2].Body[0])
			}()
			o.eventually("the page is freed", func() bool { runtime.GC(); return body.Value() == nil })
		})
	}
}

func TestWaitForAnUnknownProjectionRegistersNothing(t *testing.T) {
	r := newRegistry()
	for i := range 100 {
		if err := r.WaitFor(t.Context(), projection.ID{Tenant: "typo", Name: "p", Partition: i}, 1); !errors.Is(err,
			ErrNotHere) {
			t.Fatal(err)
		}
	}
	if n := len(r.projections); n != 0 {
		t.Errorf("%d entries are kept", n)
	}
}

// outside replaces everything around the actor under test: its parent, its feed, its subscriber, and the store, without
// a database.
type outside struct {
	t       *testing.T
	deps    *Deps
	pid     *actor.PID
	heard   chan any
	store   *memory
	def     *engine.Definition
	lease   engine.Lease
	applied chan int64
	// reread is what the node answers when the projection asks for its lease.
	reread func(engine.Lease) engine.Lease
}

func surround(t *testing.T) *outside {
	o := &outside{t: t, heard: make(chan any, 1000), store: &memory{}, applied: make(chan int64, 1000),
		lease: engine.Lease{Row: 1, ID: projection.ID{Tenant: "a", Name: "p"}, Epoch: 1}}
	o.def = &engine.Definition{MaxEvents: 10, MaxBytes: 1 << 20, Timeout: time.Minute,
		Batches: engine.Batches{Apply: func(_ context.Context, _ engine.Lease, batch engine.Batch) error {
			for _, e := range batch.Events {
				o.applied <- e.Position
			}
			return nil
		}}}
	o.deps = &Deps{System: NewSystem(zap.NewNop()), Store: Store{Events: o.store, Plane: control.On(outage{})},
		Log: zap.NewNop(), Node: engine.Node{LeaseDuration: time.Hour},
		Limiter: NewLimiter(Limits{Connections: 2, Batches: 1, BatchesPerTenant: 1}),
		Timing: Timing{
			HeartbeatInterval: time.Hour, PollInterval: time.Hour, ReconcileInterval: time.Hour,
			AdvanceInterval: time.Hour, QueryTimeout: time.Minute,
		}}
	o.deps.Init()
	o.deps.Registry.session.publish(func(e *SessionEntry) { e.HeartbeatSent = time.Now() })
	o.pid = o.deps.System.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch msg := ctx.Message().(type) {
		case func(actor.Context):
			msg(ctx)
		case actor.SystemMessage, actor.AutoReceiveMessage:
		case *messages.LeaseRequest:
			lease := msg.Lease
			if o.reread != nil {
				lease = o.reread(lease)
			}
			ctx.Send(ctx.Sender(), &messages.LeaseRead{Lease: lease, Op: msg.Op})
		default:
			o.heard <- msg
		}
	}))
	t.Cleanup(func() {
		_ = o.deps.System.Root.StopFuture(o.pid).Wait()
		o.deps.Refuse()
		o.deps.GiveUp(errors.New("the test is over"))
		o.deps.Wait()
	})
	return o
}

func (o *outside) in(fn func(ctx actor.Context)) { o.deps.System.Root.Send(o.pid, fn) }

func (o *outside) projection() *actor.PID {
	spawned := make(chan *actor.PID)
	o.in(func(ctx actor.Context) {
		spawned <- mustSpawn(o.t, o.deps, ctx, NewProjection(o.deps, o.def, o.lease, o.pid, true))
	})
	return <-spawned
}

func mustSpawn(t *testing.T, deps *Deps, ctx actor.SpawnerContext, b Behaviour) *actor.PID {
	t.Helper()
	pid, err := deps.Spawn(ctx, deps.System.ProcessRegistry.NextId(), b)
	if err != nil {
		t.Error(err)
	}
	return pid
}

func (o *outside) send(to *actor.PID, msg any) {
	o.deps.System.Root.RequestWithCustomSender(to, msg, o.pid)
}

func (o *outside) entry() ProjectionEntry {
	e, _ := o.deps.Registry.Get(o.lease.ID)
	return e
}

func (o *outside) takeSlot() (release func()) {
	release, err := o.deps.Limiter.batch(o.t.Context(), o.deps.Limiter.feed(o.lease.ID.Tenant))
	if err != nil {
		o.t.Fatal(err)
	}
	return release
}

func (o *outside) eventually(what string, cond func() bool) {
	o.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(hangs); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			o.t.Fatalf("never: %s", what)
		}
	}
}

func (o *outside) mustApply(positions ...int64) {
	o.t.Helper()
	for _, want := range positions {
		if got := receive(o, o.applied); got != want {
			o.t.Fatalf("applied %d, want %d", got, want)
		}
	}
}

func receive[T any](o *outside, from chan T) T {
	o.t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(hangs):
		o.t.Fatalf("no %T came", *new(T))
	}
	panic("unreachable")
}

// memory is a store of one tenant in memory.
type memory struct {
	engine.Events
	mu     sync.Mutex
	events []event.Envelope // only those that concern the projection
	// followers is nil if there are none.
	followers *informed
}

// unfollowed are the followers of a store that has none.
type unfollowed struct{}

func (unfollowed) Followed(string) bool { return false }

func (unfollowed) Advanced(string, *engine.Tail) {}

func (unfollowed) Gone(string) {}

func (m *memory) Followers() engine.Followers {
	if m.followers == nil {
		return unfollowed{}
	}
	return m.followers
}

func (m *memory) change(fn func(m *memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn(m)
}

func (m *memory) Read(_ context.Context, _ string, r engine.ReadRange) (engine.Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return read(m.events, r), nil
}

// read is a store's Read over a slice.
func read(all []event.Envelope, r engine.ReadRange) engine.Page {
	page := engine.Page{To: r.UpTo}
	bytes := 0
	for i := range all {
		if all[i].Position <= r.After || all[i].Position > r.UpTo {
			continue
		}
		if len(page.Events) == r.Limit || len(page.Events) > 0 && bytes+all[i].Size() > r.MaxBytes {
			page.To = page.Events[len(page.Events)-1].Position
			break
		}
		page.Events = append(page.Events, all[i])
		bytes += all[i].Size()
	}
	return page
}

// outage takes every error for one of the infrastructure.
type outage struct{ store.Control }

func (outage) Classify(err error) *faults.Fault {
	return &faults.Fault{Class: faults.Infrastructure, Err: err}
}

// hangs is a limit that only a hang exceeds.
const hangs = 20 * time.Second

// envelopes returns n events.
func envelopes(n int64) (events []event.Envelope) {
	for at := int64(1); at <= n; at++ {
		events = append(events, event.Envelope{Position: at, Type: "counted"})
	}
	return events
}
