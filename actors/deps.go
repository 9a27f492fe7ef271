package actors

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/observe"
)

// Timing has the intervals of a runtime. Those without a comment are fields of millrace.Config, or constants of package
// tuning.
type Timing struct {
	HeartbeatInterval time.Duration
	// ListPeers is the time between two checks of the other nodes. Confirm is the least time between the two checks
	// that must both miss the session lock of a node before it is marked dead.
	ListPeers, Confirm time.Duration
	PollInterval       time.Duration
	ReconcileInterval  time.Duration
	AdvanceInterval    time.Duration
	QueryTimeout       time.Duration
	// ReplayRest is how long nothing is replayed after a replay that had no effect, through no fault of its event. It
	// doubles with each such replay in a row.
	ReplayRest time.Duration
}

// Store is what the actors use of a store.
type Store struct {
	Plane     control.Plane
	Ownership engine.Ownership
	Events    engine.Events
	Lists     engine.Lists
	Health    engine.Health
}

// StoreOf returns what the actors use of a store.
func StoreOf(d store.Driver) Store {
	return Store{Plane: control.On(d), Ownership: d, Events: d, Lists: d, Health: d}
}

// Deps is what all actors of a runtime share.
type Deps struct {
	Store
	System *actor.ActorSystem
	Log    *zap.Logger
	// Node is the node as others see it. Operating also has the projections whose operations it carries out without
	// running them.
	Node, Operating engine.Node
	Timing          Timing
	Definitions     map[string]*engine.Definition
	Limiter         *Limiter
	Registry        *Registry
	Feeds           *Router
	// Observer's callbacks do not panic. Those that are nil are not called.
	Observer observe.Observer

	lifetime
	windows *budget
	prober  prober
	shared  shared
}

// OnlyOperates reports whether the node carries out operations, and runs no projections.
func (d *Deps) OnlyOperates() bool { return len(d.Node.Projections) == 0 }

// Init sets the unexported fields, and the exported ones that depend on them.
func (d *Deps) Init() {
	d.lifetime.init()
	d.Registry = newRegistry()
	d.Feeds = newRouter(d.System.Root)
	d.shared.init()
	d.windows = newBudget(tailBytes)
}

// lifetime ends the work of a runtime in steps.
type lifetime struct {
	// accept ends when no further batch may begin, life when the work in progress is cancelled, and registered when the
	// node deregisters, even if work is still in progress.
	accept, life, registered context.Context

	refuse, deregister context.CancelFunc
	giveUp             context.CancelCauseFunc
	work               sync.WaitGroup
	// over reports that the runtime has ended. Timers that are left do nothing.
	over atomic.Bool
}

func (l *lifetime) init() {
	l.life, l.giveUp = context.WithCancelCause(context.Background())
	l.accept, l.refuse = context.WithCancel(l.life)
	l.registered, l.deregister = context.WithCancel(context.Background())
}

// Refuse lets no further batch begin.
func (l *lifetime) Refuse() { l.refuse() }

// Refused returns a channel that is closed when no further batch may begin.
func (l *lifetime) Refused() <-chan struct{} { return l.accept.Done() }

// GiveUp cancels the work in progress.
func (l *lifetime) GiveUp(cause error) { l.giveUp(cause) }

// Deregister makes the listener deregister the node, unless it did that when it was stopped.
func (l *lifetime) Deregister() { l.deregister() }

// Own runs fn in a goroutine that Wait waits for.
func (l *lifetime) Own(fn func()) { l.work.Go(fn) }

// Wait returns when no work is in progress, at the end of the runtime.
func (l *lifetime) Wait() {
	l.work.Wait()
	l.over.Store(true)
}

// Go runs work in a goroutine, for at most limit. Then done is called with its error in the actor of ctx, unless that
// actor has stopped. Only an actor may call Go, so that no work begins after Wait.
func (d *Deps) Go(ctx actor.Context, limit time.Duration, work func(ctx context.Context) error,
	done func(ctx actor.Context, err error)) (cancel context.CancelFunc) {
	return d.runUnbounded(ctx, func(ctx context.Context) func(actor.Context) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err := work(ctx)
		return func(ctx actor.Context) { done(ctx, err) }
	})
}

// runUnbounded runs work in a goroutine. The actor of ctx then calls what work returns.
func (d *Deps) runUnbounded(ctx actor.Context,
	work func(ctx context.Context) func(actor.Context)) (cancel context.CancelFunc) {
	self := ctx.Self()
	life, cancel := context.WithCancel(d.life)
	d.Own(func() {
		defer cancel()
		d.call(self, work(life))
	})
	return cancel
}

// After calls fn in the actor of ctx after a delay, unless the timer or the actor is stopped, or the runtime has ended.
func (d *Deps) After(ctx actor.Context, delay time.Duration, fn func(ctx actor.Context)) *time.Timer {
	self := ctx.Self()
	return time.AfterFunc(delay, func() {
		if !d.over.Load() {
			d.call(self, fn)
		}
	})
}

// call has the actor with that PID call fn, unless the actor has stopped.
func (d *Deps) call(pid *actor.PID, fn func(ctx actor.Context)) { d.System.Root.Send(pid, &call{fn}) }

// FaultDelay returns the delay after that many faults in a row that are not an event's.
func FaultDelay(faults int) time.Duration {
	return backoff.Delay(machine.FaultPolicy(), faults, rand.Float64())
}

func stopTimer(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}
