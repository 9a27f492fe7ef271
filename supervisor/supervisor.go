package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// Supervisor is the handle on the actors of a runtime.
type Supervisor struct {
	deps *actors.Deps
	pid  *actor.PID
	done chan struct{}
	err  error
}

// Start starts the actors: the supervisor and, under it, the node and the listener. Feeds and projections follow as
// leases are claimed.
func Start(deps *actors.Deps) (*Supervisor, error) {
	s := &Supervisor{deps: deps, done: make(chan struct{})}
	root := &rootStrategy{log: deps.Log}
	sup := &supervisor{deps: deps, handle: s, root: root, gate: newGate(deps),
		children: make(map[string]*child), feeds: make(map[string]*child), projections: make(map[int32]*child), ids: make(map[projection.ID]*child)}
	props := actors.Props("supervisor", deps.Log, sup, actor.WithSupervisor(&strategy{sup}), actor.WithGuardian(root))
	pid, err := deps.System.Root.SpawnNamed(props, "supervisor")
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	s.pid = pid
	return s, nil
}

// Done is closed when all actors are gone.
func (s *Supervisor) Done() <-chan struct{} { return s.done }

// Err tells, once Done is closed, why the actors ended if nobody asked them to.
func (s *Supervisor) Err() error { return s.err }

// Stop lets batches under way finish within grace, gives the leases back, and stops all actors. It returns when they are
// gone, or with ctx's error. It is idempotent.
func (s *Supervisor) Stop(ctx context.Context, grace time.Duration) error {
	s.deps.System.Root.Send(s.pid, &stop{grace: grace})
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		s.deps.GiveUp(ctx.Err())
		s.deps.Deregister()
		return fmt.Errorf("stop the actors: %w", ctx.Err())
	}
}

// stop asks the supervisor to stop everything in order.
type stop struct{ grace time.Duration }

// supervisor is the actor behind Supervisor.
type supervisor struct {
	deps   *actors.Deps
	handle *Supervisor
	root   *rootStrategy
	gate   *gate

	node, listener *child
	children       map[string]*child        // by PID
	feeds          map[string]*child        // by tenant
	projections    map[int32]*child         // by the row of the lease
	ids            map[projection.ID]*child // the same
	incarnation    int
	watch          *time.Timer
	stopping       bool // the node releases all leases, and everything stops then
}

// errNoNode is the answer to what only the node could do, while it is started again.
var errNoNode = errors.New("the node's actor is being started again")

// What the supervisor posts to itself.
type (
	respawnDue struct{ child *child }
	graceOver  struct{}
	watchDue   struct{}
)

func (b *supervisor) Start(ctx actor.Context) {
	b.node = &child{name: "node"}
	b.node.respawn = b.startNode
	b.node.respawn(ctx)
	b.listener = &child{name: "listener"}
	b.listener.respawn = func(ctx actor.Context) { b.spawn(ctx, b.listener, actors.NewListener(b.deps)) }
	b.listener.respawn(ctx)
	b.watch = b.deps.After(watchEvery, ctx.Self(), &watchDue{})
}

// Stop is called before the children are stopped.
func (b *supervisor) Stop(actor.Context) {
	b.stopping = true
	b.watch.Stop()
	b.deps.Refuse()
	b.deps.GiveUp(errors.New("the runtime stopped"))
}

// Gone is called when the children are gone.
func (b *supervisor) Gone(actor.Context) {
	if b.root.reason != nil {
		b.handle.err = b.root.reason
	}
	close(b.handle.done)
}

func (b *supervisor) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.Run:
		b.run(ctx, msg.Lease)
	case *messages.Drain:
		b.drain(ctx, msg)
	case *messages.Retire:
		if c := b.find(msg.Key); c != nil {
			b.retire(ctx, c)
		}
	case *messages.Revalidate:
		b.pass(ctx, msg.Key, msg)
	case *messages.Commanded:
		b.pass(ctx, msg.Key, msg)
	case *messages.Resumed:
		b.resume(ctx, msg.Key)
	case *messages.Drained, *messages.LeaseLost, *messages.SessionUp, *messages.SessionLost, *messages.Beaten, *messages.FleetChanged, *messages.Notified:
		b.toNode(ctx, msg)
	case *messages.AdvanceRequest:
		if b.node.pid == nil {
			ctx.Send(ctx.Sender(), &messages.Advanced{Op: msg.Op})
			return
		}
		ctx.Forward(b.node.pid)
	case *messages.LeaseRequest:
		if b.node.pid == nil {
			ctx.Send(ctx.Sender(), &messages.LeaseRead{Op: msg.Op, Err: errNoNode})
			return
		}
		ctx.Forward(b.node.pid)
	case *actor.Terminated:
		b.terminated(ctx, msg.Who)
	case *respawnDue:
		if c := msg.child; c.pid == nil && b.starts(c) {
			c.respawn(ctx)
		}
	case *watchDue:
		b.lookForStuck(ctx)
	case *stop:
		b.stop(ctx, msg.grace)
	case *graceOver:
		b.deps.GiveUp(errors.New("the grace period is over"))
	case *messages.AllReleased:
		if b.stopping {
			ctx.Stop(ctx.Self())
		}
	default:
		b.handleFault(ctx, msg)
	}
}

// handleFault handles what is about faults and the server being away.
func (b *supervisor) handleFault(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.Faulted:
		b.faulted(ctx, msg)
	case *messages.Recovered:
		if c := b.children[ctx.Sender().Id]; c != nil {
			c.faults, c.told = 0, false
		}
	case *probed:
		if !b.stopping {
			b.gate.probed(ctx, msg)
		}
	case *answered:
		if !b.stopping {
			for _, c := range b.gate.answered(ctx, msg.err) {
				b.serverAnswers(ctx, c)
			}
		}
	case *probeDue:
		b.gate.probe(ctx)
	}
}

// toNode passes a report on to the node. While the node is started again it is dropped: the next node finds out from the
// database and from its children.
func (b *supervisor) toNode(ctx actor.Context, msg any) {
	if b.node.pid != nil {
		ctx.Send(b.node.pid, msg)
	}
}

// stop has the node release all leases. Heartbeats go on meanwhile.
func (b *supervisor) stop(ctx actor.Context, grace time.Duration) {
	if b.stopping {
		return
	}
	b.stopping = true
	b.deps.Refuse()
	b.toNode(ctx, &messages.ReleaseAll{})
	b.deps.After(grace, ctx.Self(), &graceOver{})
}
