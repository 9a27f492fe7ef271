package actors

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/fair"
	"github.com/millrace-go/millrace/messages"
)

const (
	// operationsMost is how many operations a node carries out at once, beside those that wait for a version to catch
	// up.
	operationsMost = 4
	// crashesMost is how many runs of an operation's hook may end with their node, or with their connection to the
	// server. The hook may be the cause.
	crashesMost = 5
	// holdFirst and holdMost bound the delays between two checks whether the projections of an operation stand still.
	holdFirst, holdMost = 2 * time.Millisecond, 100 * time.Millisecond
)

// operator carries out operations of projections that this node registers: it holds their projections, runs the hook,
// and ends the operation. Each operation has a goroutine of its own. What must not happen twice is fenced by the
// operation's epoch.
type operator struct {
	deps *Deps
	log  *zap.Logger
	// running are the operations in progress, with the functions that cancel them.
	running map[int64]context.CancelFunc
	// places are what an operation needs to hold its projections and to run its hook.
	places *slots
	// swapsWaiting counts the swaps that wait for a version to catch up, and so take none of the places.
	swapsWaiting *atomic.Int64
	// taking reports that a search is in progress, and again that another one was asked for meanwhile.
	taking, again bool
	// draining reports that the runtime stops, and that the supervisor waits until no operation runs.
	draining bool
	timer    *time.Timer
}

// NewOperator returns the operator of a node.
func NewOperator(deps *Deps) Behaviour {
	return &operator{deps: deps, log: deps.Log, running: make(map[int64]context.CancelFunc),
		places: newSlots(operationsMost, 0), swapsWaiting: new(atomic.Int64)}
}

func (o *operator) Start(ctx actor.Context) { o.take(ctx) }

func (o *operator) Stop(actor.Context) {
	stopTimer(o.timer)
	for _, cancel := range o.running {
		cancel()
	}
	o.deps.Registry.operator.forget()
}

func (o *operator) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.SessionUp, *messages.FleetChanged:
		o.take(ctx)
	case *messages.Notified:
		if msg.Notice.Operations {
			o.take(ctx)
		}
	case *messages.ReleaseAll:
		o.draining = true
		o.onDrained(ctx)
	}
}

// onDrained reports that no operation runs any more, if the supervisor waits for it.
func (o *operator) onDrained(ctx actor.Context) {
	if o.draining && !o.taking && len(o.running) == 0 {
		ctx.Send(ctx.Parent(), &messages.OperationsEnded{})
	}
}

// take searches for an operation and begins it. The search also runs at intervals, since a notification may be lost. It
// is one statement for all projections.
func (o *operator) take(ctx actor.Context) {
	stopTimer(o.timer)
	o.timer = o.deps.After(ctx, jittered(o.deps.Timing.ReconcileInterval), o.take)
	if o.taking {
		o.again = true
		return
	}
	if o.deps.accept.Err() != nil || !o.deps.Registry.Session().Connected || !o.deps.leasesConfirmed() {
		return
	}
	release := o.places.tryAcquire(fair.Flow{})
	if release == nil {
		return
	}
	o.taking, o.again = true, false
	running := make([]int64, 0, len(o.running))
	for number := range o.running {
		running = append(running, number)
	}
	var taken *engine.Operation
	o.deps.Go(ctx, o.deps.Timing.QueryTimeout, func(ctx context.Context) error {
		o.deps.Registry.operator.begin(searching, o.deps.Timing.QueryTimeout)
		defer o.deps.Registry.operator.end(searching)
		return o.deps.Limiter.Read(ctx, func(ctx context.Context) (err error) {
			taken, err = o.deps.Plane.TakeOperation(ctx, o.deps.Operating, running)
			return err
		})
	}, func(ctx actor.Context, err error) {
		o.taking = false
		if err != nil {
			o.log.Warn("searching for operations failed, retrying", zap.Error(err))
		}
		if taken != nil {
			o.begin(ctx, *taken, release)
		} else {
			release()
		}
		if taken != nil || o.again {
			o.take(ctx)
		}
		o.onDrained(ctx)
	})
}

// begin carries out an operation in a goroutine. The operation has a place, which release frees.
func (o *operator) begin(ctx actor.Context, op engine.Operation, release func()) {
	self := ctx.Self()
	p := place{slots: o.places, flow: fair.Flow{Tenant: op.ID.Tenant, Projection: op.ID.Name}, release: release,
		freed: func() { o.deps.call(self, o.take) }}
	run := operation{deps: o.deps, op: op, began: time.Now(), place: p, swapsWaiting: o.swapsWaiting,
		log: o.log.With(zap.Int64("operation", op.Number), zap.String("kind", string(op.Kind)),
			zap.String("tenant", op.ID.Tenant), zap.String("projection", op.ID.Name))}
	o.running[op.Number] = o.deps.runUnbounded(ctx, func(ctx context.Context) func(actor.Context) {
		defer o.deps.Registry.operator.end(op.Number)
		run.carryOut(ctx)
		return func(ctx actor.Context) {
			delete(o.running, op.Number)
			o.take(ctx)
			o.onDrained(ctx)
		}
	})
}

// place is one of the places of an operator. An operation that waits, for a version to catch up or for its next try,
// has none, so that it does not keep the node from other operations.
type place struct {
	slots *slots
	flow  fair.Flow
	// release is nil while the operation has no place.
	release func()
	// freed is called when a place became free.
	freed func()
}

func (p *place) take(ctx context.Context) (err error) {
	if p.release == nil {
		p.release, err = p.slots.acquire(ctx, p.flow)
	}
	return err
}

func (p *place) leave() {
	if p.release != nil {
		p.release()
		p.release = nil
		p.freed()
	}
}

// operation is an operation that this node carries out.
type operation struct {
	deps  *Deps
	op    engine.Operation
	began time.Time
	place place
	log   *zap.Logger
	// swapsWaiting is that of the operator.
	swapsWaiting *atomic.Int64
	// crashes counts the runs of the hook that ended with their node or connection, when the last one ended so.
	crashes int
	// fault is the error of the last run that did so on this node.
	fault error
}

// carryOut tries until the operation has ended, or until another node, or no node, may carry it out.
func (r *operation) carryOut(ctx context.Context) {
	r.log.Info("operation began", zap.Int64("epoch", r.op.Epoch))
	defer r.place.leave()
	waiting, stop := context.WithCancel(r.deps.accept)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	if r.deps.Definitions[r.op.ID.Name] == nil {
		// The projection was renamed after the search had found the operation.
		r.log.Info("operation has a name that this node does not register, leaving it to another node")
		for tries := 1; !r.giveBack(ctx) && pause(waiting, FaultDelay(tries)); tries++ {
		}
		return
	}
	for tries := 1; ; tries++ {
		err := r.try(ctx, waiting)
		if errors.Is(err, engine.ErrNotStill) && pause(waiting, holdMost) {
			continue // the next try holds them
		}
		failure := r.failure(ctx, err)
		if failure != nil {
			err = r.step(ctx, func(ctx context.Context) error { return r.deps.Plane.FailOperation(ctx, r.op, failure) })
		}
		switch {
		case err == nil && failure == nil:
			r.log.Info("operation ended")
			return
		case err == nil:
			r.log.Error("operation failed", zap.Error(failure))
			return
		case r.deps.Plane.Classify(err).Class == faults.LeaseLost:
			r.log.Info("operation was ended or taken over meanwhile")
			return
		}
		if waiting.Err() == nil {
			r.log.Warn("operation is tried again", zap.Error(err))
			_ = r.step(ctx,
				func(ctx context.Context) error { return r.deps.Plane.NoteOperation(ctx, r.op, err.Error()) })
			r.place.leave()
		}
		if !pause(waiting, FaultDelay(tries)) {
			r.giveBack(ctx)
			return
		}
	}
}

// giveBack leaves the operation to another node, and reports whether it did.
func (r *operation) giveBack(ctx context.Context) bool {
	err := r.step(context.WithoutCancel(ctx),
		func(ctx context.Context) error { return r.deps.Plane.ReleaseOperation(ctx, r.op) })
	if err != nil {
		r.log.Warn("releasing an operation failed", zap.Error(err))
	}
	return err == nil
}

// try takes the steps of the operation once.
func (r *operation) try(ctx, waiting context.Context) error {
	def := r.deps.Definitions[r.op.ID.Name]
	if err := def.Allows(r.op); err != nil {
		return engine.EndsOperation(err)
	}
	if err := r.place.take(waiting); err != nil {
		return err
	}
	hook, _ := def.Hook(r.op.Kind)
	code := engine.OperationCode{Hook: hook, Timeout: def.Timeout, Types: def.Types}
	if err := r.standStill(ctx, waiting, &code); err != nil {
		return err
	}
	// The hook has a connection of the pool, as a batch has.
	release, err := r.deps.Limiter.batch(waiting, r.flow(def))
	if err != nil {
		return err
	}
	defer release()
	limit := def.Timeout + 5*r.deps.Timing.QueryTimeout
	r.deps.Registry.operator.begin(r.op.Number, limit)
	defer r.deps.Registry.operator.end(r.op.Number)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if code.Hook.Run == nil {
		return r.deps.Plane.RunOperation(ctx, r.op, code)
	}
	return r.runHook(ctx, code)
}

// runHook runs the transaction of the operation. A run that ends with its node, or with its connection, stays recorded:
// the hook may be the cause, for instance by a statement that ends its server.
func (r *operation) runHook(ctx context.Context, code engine.OperationCode) error {
	number := rand.Int64()
	others, err := r.deps.Plane.BeginHook(ctx, r.op, number)
	if err != nil {
		return err
	}
	if others >= crashesMost {
		err = engine.EndsOperation(r.crashed(others))
	} else {
		err = r.deps.Plane.RunOperation(ctx, r.op, code)
	}
	if err == nil {
		return nil
	}
	if r.unclear(ctx, err) {
		r.crashes, r.fault = others+1, err
		return err
	}
	returned := r.step(context.WithoutCancel(ctx),
		func(ctx context.Context) error { return r.deps.Plane.HookReturned(ctx, r.op, number) })
	if returned != nil {
		r.log.Warn("recording that the hook of an operation returned failed", zap.Error(returned))
	}
	return err
}

// crashed is the failure of an operation after that many runs of its hook that did not return as far as the store
// knows.
func (r *operation) crashed(runs int) error {
	if r.fault != nil {
		return fmt.Errorf("%d runs of its hook met faults of the server or ended with their nodes, the last one: %v",
			runs, r.fault)
	}
	return fmt.Errorf("%d runs of its hook ended with their nodes or connections", runs)
}

// unclear reports whether the hook may have caused a fault of the server or of the connection.
func (r *operation) unclear(ctx context.Context, err error) bool {
	class := r.deps.Plane.Classify(err).Class
	return (class == faults.Unclear || class == faults.Interrupted) && ctx.Err() == nil
}

func (r *operation) flow(def *engine.Definition) fair.Flow {
	return r.deps.Limiter.flow(r.op.ID.Tenant, r.op.ID.Name, def.Weight)
}

// standStill waits until the projections of the operation stand still. It removes the hook if it must not run.
func (r *operation) standStill(ctx, waiting context.Context, code *engine.OperationCode) error {
	if r.op.Kind != engine.OperationSwap {
		return r.hold(ctx, waiting, r.op.Holds)
	}
	s := swapping{operation: r, types: code.Types}
	if err := r.op.Decode(&s.options); err != nil {
		return engine.EndsOperation(err)
	}
	inUse, err := s.standStill(ctx, waiting)
	if inUse {
		code.Hook = handler.Hook{}
	}
	return err
}

// hold waits until those of the operation's projections stand still that have these names.
func (r *operation) hold(ctx, waiting context.Context, names []string) error {
	return backoff.Poll(waiting, holdFirst, holdMost, func() (free bool, err error) {
		err = r.step(ctx, func(ctx context.Context) (err error) {
			free, err = r.deps.Plane.Hold(ctx, r.op, names)
			return err
		})
		return free, err
	})
}

// step waits for a slot, and runs a short statement. Many operations may wait on a node, and all give back at once when
// it stops.
func (r *operation) step(ctx context.Context, statement func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.deps.Timing.QueryTimeout)
	defer cancel()
	r.deps.Registry.operator.begin(r.op.Number, r.deps.Timing.QueryTimeout)
	defer r.deps.Registry.operator.end(r.op.Number)
	return r.deps.Limiter.Read(ctx, statement)
}

// failure returns the error with which the operation ends, nil if err is nil or passes with time.
func (r *operation) failure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	switch r.deps.Plane.Classify(err).Class {
	case faults.Infrastructure, faults.LeaseLost:
		return nil
	case faults.Unclear, faults.Interrupted:
		if ctx.Err() != nil || r.crashes < crashesMost {
			return nil
		}
	}
	return err
}

// pause waits. It reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
