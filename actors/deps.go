// Package actors are the node, the listener, the feeds and the projections of a runtime, and the one shell around them. It is
// part of the engine and promises no compatibility.
//
//   - The node decides which leases this process claims and releases. It alone knows which it holds (ownership.Table), and asks
//     the supervisor to run, drain and retire their projections. It also serves reads of leases, lazy checkpoints and the poll of
//     heads, one statement for many projections.
//   - The listener owns the session connection: notifications, heartbeats, the look at other nodes.
//   - A feed settles and reads the end of one tenant's events for all projections of it.
//   - A projection owns its checkpoint while it holds the lease. Only the database can say that the lease is lost.
//
// All messages between them pass through the supervisor, so that each may be started again without the others. Messages about a
// lease carry its row and epoch; those about an earlier epoch are dropped. When the node is started again, it is told which
// projections run, reads from the database which leases it owns, and asks for the difference.
//
// Receive never blocks: work on the database runs in a goroutine of its own that posts its result back to the actor's
// mailbox. An actor that was stopped has another name when it is started again, so a late result finds nobody.
package actors

import (
	"context"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
)

// Timing are the intervals that the actors work by.
type Timing struct {
	// Heartbeat is how far apart the node's heartbeats are.
	HeartbeatInterval time.Duration
	// Look is how far apart the looks at the other nodes are, Confirm how far apart at least the two looks that both have
	// to miss the session lock of a node that is taken for dead.
	ListPeers, Confirm time.Duration
	// Poll is how far apart the looks at the tenants' heads are.
	Poll time.Duration
	// Reconcile is how far apart the looks for free leases and new tenants are.
	Reconcile time.Duration
	// AdvanceEvery bounds how long a checkpoint lags behind events that do not concern its projection.
	AdvanceEvery time.Duration
	// Call bounds a call of the database that runs no handler.
	QueryTimeout time.Duration
	// Rest is how long nothing is replayed after a replay came to nothing, through no fault of its event. It doubles each
	// time in a row, up to restMost times as long.
	Rest time.Duration
}

// Env is what all actors of a runtime share.
type Deps struct {
	System      *actor.ActorSystem
	Store       engine.Store
	Log         *zap.Logger
	Node        engine.Node
	Timing      Timing
	Definitions map[string]*engine.Definition
	Limiter     *Limiter
	Registry    *Registry
	Feeds       *Router
	// TailBytes bounds the memory in which all feeds together keep recent events. Default DefaultTailBytes.
	TailBytes int

	windows   *budget
	windowAge time.Duration
	// accept ends when no batch is to begin any more; life when work still under way is to be given up. work counts it.
	accept context.Context
	refuse context.CancelFunc
	life   context.Context
	giveUp context.CancelCauseFunc
	work   sync.WaitGroup
	// present ends when the node is to depart, whatever is still under way.
	present    context.Context
	deregister context.CancelFunc
	start      time.Time
	prober     prober
}

// Live gives deps what it needs to run work.
func (e *Deps) Live() {
	e.life, e.giveUp = context.WithCancelCause(context.Background())
	e.accept, e.refuse = context.WithCancel(e.life)
	e.present, e.deregister = context.WithCancel(context.Background())
	e.start = time.Now()
	e.Registry = newBoard()
	e.Feeds = newRouter(e.System.Root)
	if e.TailBytes == 0 {
		e.TailBytes = DefaultTailBytes
	}
	e.windows, e.windowAge = newBudget(e.TailBytes), windowAge
}

// Refuse lets no further batch begin.
func (e *Deps) Refuse() { e.refuse() }

// GiveUp cancels the work that is still under way.
func (e *Deps) GiveUp(cause error) { e.giveUp(cause) }

// Depart has the node depart, unless the listener's end did that before.
func (e *Deps) Deregister() { e.deregister() }

// Wait returns when no work is under way any more.
func (e *Deps) Wait() { e.work.Wait() }

// Run runs work in a goroutine and posts what it returns to pid. limit bounds it.
func (e *Deps) Run(pid *actor.PID, limit time.Duration, work func(ctx context.Context) any) {
	e.run(pid, limit, work)
}

// After posts msg to pid after a delay, unless the timer is stopped.
func (e *Deps) After(d time.Duration, pid *actor.PID, msg any) *time.Timer {
	return e.after(d, pid, msg)
}

// run runs work in a goroutine and posts what it returns to pid. It may be called by an actor only while deps lives.
func (e *Deps) run(pid *actor.PID, limit time.Duration, work func(ctx context.Context) any) (cancel context.CancelFunc) {
	return e.runUnbounded(pid, func(ctx context.Context) any {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return work(ctx)
	})
}

// runUnbounded is run without a limit.
func (e *Deps) runUnbounded(pid *actor.PID, work func(ctx context.Context) any) (cancel context.CancelFunc) {
	ctx, cancel := context.WithCancel(e.life)
	e.Own(func() {
		defer cancel()
		e.System.Root.Send(pid, work(ctx))
	})
	return cancel
}

// after posts msg to pid after a delay, unless the timer is stopped.
func (e *Deps) after(d time.Duration, pid *actor.PID, msg any) *time.Timer {
	return time.AfterFunc(d, func() { e.System.Root.Send(pid, msg) })
}

// Trusted tells whether the node may still believe that it holds its leases.
func (e *Deps) Trusted() bool { return time.Now().Before(e.leaseDeadline()) }

// leaseDeadline is until when the node may still believe that it holds its leases.
func (e *Deps) leaseDeadline() time.Time { return e.trustedUntil(e.Registry.Session()) }

// trustedUntil is when the node stops to believe that it holds its leases. The last heartbeat that arrived counts from when
// it was sent, by the monotonic clock, so the node stops before the server lets others claim.
func (e *Deps) trustedUntil(session SessionEntry) time.Time {
	return session.LastBeat.Add(e.Node.LeaseDuration - e.Node.LeaseDuration/10)
}

// Trust is an engine.LeaseDeadline. It is stricter than Trusted, for those whom no fence holds back: while the session
// connection is lost others may take the node for dead, long before its heartbeat runs out.
func (e *Deps) Trust() (until time.Time, changed <-chan struct{}) {
	session, changed := e.Registry.watchSession()
	if !session.Connected {
		return time.Time{}, changed
	}
	return e.trustedUntil(session), changed
}

// Own runs fn in a goroutine that Wait waits for.
func (e *Deps) Own(fn func()) {
	e.work.Add(1)
	go func() {
		defer e.work.Done()
		fn()
	}()
}
