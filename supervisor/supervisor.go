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

// Start starts the supervisor and, under it, the node, the listener and the operator. Feeds and projections follow as
// leases are claimed.
func Start(deps *actors.Deps) (*Supervisor, error) {
	h := &Supervisor{deps: deps, done: make(chan struct{})}
	root := &rootStrategy{log: deps.Log}
	s := &supervisor{deps: deps, handle: h, root: root, gate: newGate(deps), children: make(map[string]*child),
		feeds: make(map[string]*child), projections: make(map[projection.ID]*child), rows: make(map[int32]*child)}
	props := actors.Props(deps.Log, s, actor.WithSupervisor(&strategy{s}), actor.WithGuardian(root))
	pid, err := deps.System.Root.SpawnNamed(props, "supervisor")
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	h.pid = pid
	return h, nil
}

// Done returns a channel that is closed when all actors have ended.
func (h *Supervisor) Done() <-chan struct{} { return h.done }

// Err returns why the actors ended, if Stop did not end them. It is called after Done is closed.
func (h *Supervisor) Err() error { return h.err }

// Stop lets batches in progress finish within grace, releases the leases, and stops all actors. It returns when they
// have ended, or with ctx's error. It may be called again.
func (h *Supervisor) Stop(ctx context.Context, grace time.Duration) error {
	h.deps.System.Root.Send(h.pid, &stop{grace: grace})
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
		h.deps.GiveUp(ctx.Err())
		h.deps.Deregister()
		return fmt.Errorf("stop the actors: %w", ctx.Err())
	}
}

// stop asks the supervisor to stop everything gracefully.
type stop struct{ grace time.Duration }

// supervisor is the actor behind Supervisor.
type supervisor struct {
	deps   *actors.Deps
	handle *Supervisor
	root   *rootStrategy
	gate   *gate

	node, listener, operator *child
	children                 map[string]*child // that run, by PID
	feeds                    map[string]*child // by tenant
	projections              map[projection.ID]*child
	rows                     map[int32]*child // the projections by the rows of their leases
	spawned                  int
	watching                 *time.Timer
	stopping                 bool // the node releases all leases, operations in progress end, and then everything stops
	over                     over
}

// over reports what has ended since the supervisor stops.
type over struct{ leases, operations bool }

// errNoNode answers a request for the node while it is restarted.
var errNoNode = errors.New("the node's actor is being restarted")

func (s *supervisor) Start(ctx actor.Context) {
	s.node = &child{name: "node", respawn: s.startNode}
	s.start(ctx, s.node)
	s.listener = &child{name: "listener"}
	s.listener.respawn = func(ctx actor.Context) { s.spawn(ctx, s.listener, actors.NewListener(s.deps)) }
	s.start(ctx, s.listener)
	s.operator = &child{name: "operator"}
	s.operator.respawn = func(ctx actor.Context) { s.spawn(ctx, s.operator, actors.NewOperator(s.deps)) }
	s.start(ctx, s.operator)
	s.watchLater(ctx)
}

// Stop is called before the children are stopped.
func (s *supervisor) Stop(actor.Context) {
	s.stopping = true
	s.watching.Stop()
	s.deps.Refuse()
	s.deps.GiveUp(errors.New("the runtime stopped"))
}

// Gone is called when the children have ended.
func (s *supervisor) Gone(actor.Context) {
	if s.root.reason != nil {
		s.handle.err = s.root.reason
	}
	close(s.handle.done)
}

func (s *supervisor) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.StartProjection:
		s.run(ctx, msg.Lease)
	case *messages.Drain:
		s.drain(ctx, msg)
	case *messages.Retire:
		if c := s.find(msg.Key); c != nil {
			s.retire(ctx, c)
		}
	case *messages.Revalidate:
		s.pass(ctx, msg.Key, msg)
	case *messages.CommandPending:
		s.pass(ctx, msg.Key, msg)
	case *messages.Resumed:
		s.onResumed(ctx, msg)
	case *messages.SessionUp, *messages.FleetChanged, *messages.Notified:
		s.toNode(ctx, msg)
		s.toOperator(ctx, msg)
	case *messages.Drained, *messages.LeaseLost, *messages.HeartbeatSent:
		s.toNode(ctx, msg)
	case *messages.AdvanceRequest:
		s.askNode(ctx, &messages.Advanced{Op: msg.Op})
	case *messages.LeaseRequest:
		s.askNode(ctx, &messages.LeaseRead{Op: msg.Op, Err: errNoNode})
	case *messages.AskGate:
		if c := s.children[ctx.Sender().Id]; c != nil {
			s.gate.onFault(ctx, waiter{c.pid, c.row}, msg.Fault)
		}
	case *actor.Terminated:
		s.onTerminated(ctx, msg.Who)
	case *messages.AllReleased:
		s.over.leases = true
		s.orderly(ctx)
	case *messages.OperationsEnded:
		s.over.operations = true
		s.orderly(ctx)
	case *stop:
		s.stop(ctx, msg.grace)
	}
}

// toNode passes a report on to the node. While the node is restarted the report is dropped: the next node learns of it
// from the database and from the projections.
func (s *supervisor) toNode(ctx actor.Context, msg any) {
	if s.node.pid != nil {
		ctx.Send(s.node.pid, msg)
	}
}

// askNode forwards a request to the node, which answers the sender itself. While the node is restarted, the sender gets
// refusal.
func (s *supervisor) askNode(ctx actor.Context, refusal any) {
	if s.node.pid == nil {
		ctx.Send(ctx.Sender(), refusal)
		return
	}
	ctx.Forward(s.node.pid)
}

// toOperator passes a report on to the operator. While the operator is restarted the report is dropped: the next one
// searches at once.
func (s *supervisor) toOperator(ctx actor.Context, msg any) {
	if s.operator.pid != nil {
		ctx.Send(s.operator.pid, msg)
	}
}

// orderly stops everything once nothing is in progress.
func (s *supervisor) orderly(ctx actor.Context) {
	if s.stopping && s.over.leases && (s.over.operations || s.operator.pid == nil) {
		ctx.Stop(ctx.Self())
	}
}

// stop has the node release all leases, and the operator end its operations. Heartbeats continue meanwhile.
func (s *supervisor) stop(ctx actor.Context, grace time.Duration) {
	if s.stopping {
		return
	}
	s.stopping, s.gate.stopped = true, true
	s.deps.Refuse()
	s.toNode(ctx, &messages.ReleaseAll{})
	s.toOperator(ctx, &messages.ReleaseAll{})
	s.deps.After(ctx, grace, func(actor.Context) { s.deps.GiveUp(errors.New("the grace period is over")) })
}
