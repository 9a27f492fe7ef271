package actors

import (
	"fmt"
	"runtime/debug"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/growstack"
)

// Behaviour is an actor without its lifecycle, which the shell takes care of.
type Behaviour interface {
	// Start is called once, before any message.
	Start(ctx actor.Context)
	// Handle handles one message. It must not block.
	Handle(ctx actor.Context, msg any)
	// Stop is called once, and no message follows. It cancels the actor's work and timers.
	Stop(ctx actor.Context)
}

// call is a message that an actor's own work or timer sends. The shell calls do in place of Behaviour.Handle.
type call struct{ do func(ctx actor.Context) }

// Crash is the reason that the supervisor gets if an actor panics.
type Crash struct {
	Actor string
	Value any
	Stack string
}

func (c *Crash) Error() string { return fmt.Sprintf("%s panicked: %v", c.Actor, c.Value) }

// mailbox is the mailbox of every actor. An empty one takes some 180 bytes less than the default, and it frees the
// memory of a long queue.
var mailbox = actor.WithMailbox(actor.UnboundedLockfree())

// dispatcher runs the messages of an actor in a goroutine, as the library does, but with a stack that need not grow.
// After 300 messages of one actor, other goroutines may run.
type dispatcher struct{}

// dispatched gives all actors that dispatcher.
var dispatched = actor.WithDispatcher(dispatcher{})

func (dispatcher) Throughput() int { return 300 }

func (dispatcher) Schedule(messages func()) {
	go func() {
		growstack.Grow()
		messages()
	}()
}

// Props returns the properties of an actor with that behaviour.
func Props(log *zap.Logger, b Behaviour, options ...actor.PropsOption) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor { return &shell{log: log, behaviour: b} },
		options...).Configure(mailbox, dispatched)
}

// shell protects a behaviour from what protoactor does with panics and late messages. A panic in a message goes to the
// supervisor once, as a Crash. A panic in Stop is only logged, since it would restart the actor or hang its parent. A
// message after Stop is dropped.
type shell struct {
	log       *zap.Logger
	behaviour Behaviour
	stopping  bool
}

func (s *shell) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		s.orCrash(ctx, func() { s.behaviour.Start(ctx) })
	case *actor.Stopping, *actor.Restarting:
		if !s.stopping {
			s.stopping = true
			s.orLog(ctx, func() { s.behaviour.Stop(ctx) })
		}
	case *actor.Stopped:
		if b, ok := s.behaviour.(interface{ Gone(actor.Context) }); ok {
			s.orLog(ctx, func() { b.Gone(ctx) })
		}
	case *actor.Terminated:
		// A supervisor gets it also while it stops, and so learns that its children are gone.
		s.orLog(ctx, func() { s.behaviour.Handle(ctx, msg) })
	case *call:
		if !s.stopping {
			s.orCrash(ctx, func() { msg.do(ctx) })
		}
	default:
		if !s.stopping {
			s.orCrash(ctx, func() { s.behaviour.Handle(ctx, msg) })
		}
	}
}

func (s *shell) orCrash(ctx actor.Context, fn func()) {
	defer func() {
		if r := recover(); r != nil {
			panic(&Crash{Actor: ctx.Self().Id, Value: r, Stack: string(debug.Stack())})
		}
	}()
	fn()
}

func (s *shell) orLog(ctx actor.Context, fn func()) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Error("actor panicked while stopping", zap.String("actor", ctx.Self().Id), zap.Any("panic", r),
				zap.ByteString("stack", debug.Stack()))
		}
	}()
	fn()
}
