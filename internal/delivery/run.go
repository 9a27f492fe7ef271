// Package delivery runs the deliveries of projections whose handlers work outside of a transaction. It records what a
// handler acknowledges and rejects. A store moves the checkpoint.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
)

// Store is what deliveries need of a store.
type Store interface {
	// Begin reports whether the lease is held at its checkpoint, and returns the token of its projection.
	Begin(ctx context.Context, lease engine.Lease) (held bool, token string, err error)
	// Move moves the checkpoint to step.To in one durable transaction under the lease's fence. The transaction also
	// parks the blocked events of the step and the rejected event, unless that is nil, and resolves the dead letter of
	// the step's replay.
	Move(ctx context.Context, lease engine.Lease, step engine.Batch, rejected *engine.Rejected) error
	// Fault classifies the error of a statement of the store.
	Fault(err error) *faults.Fault
	// HandlerClass is the class of an error that a handler returned.
	HandlerClass(err error) faults.Class
}

// Port is a store and what its deliveries share.
type Port struct {
	Store
	// MoveTime bounds each Move, with the wait for the connection.
	MoveTime time.Duration
	Log      *zap.Logger
	// Abandoned counts the handlers that did not return after their context was cancelled.
	Abandoned *atomic.Int64
}

// Run returns the ApplyFunc of a projection that delivers by h.
func (p Port) Run(h handler.Handler, o engine.DeliverOptions) engine.ApplyFunc {
	return func(ctx context.Context, lease engine.Lease, batch engine.Batch) error {
		ctx = handler.WithProjection(ctx, lease.ID)
		acks, giveUp := context.WithCancel(context.WithoutCancel(ctx))
		defer giveUp()
		d := &delivery{
			store: p, batch: batch, opts: o, lease: lease, recent: batch.FailureWindow, acks: acks, end: func(error) {},
		}
		if len(batch.Events) == 0 {
			return d.move(ctx, batch.To, nil)
		}
		if err := d.begin(ctx); err != nil {
			return fmt.Errorf("begin a delivery of %s: %w", lease.ID, err)
		}
		// The handler's time begins after the check of the lease.
		timed, cancel := context.WithTimeoutCause(ctx, o.Timeout, projection.ErrTimeout)
		defer cancel()
		d.ctx, d.end = context.WithCancelCause(timed)
		defer d.end(nil)
		err, cause := d.call(h.Deliver, giveUp)
		if err := d.ended(err, cause); err != nil {
			return fmt.Errorf("deliver to %s: %w", lease.ID, err)
		}
		return nil
	}
}

// begin returns an error unless this node holds the lease. No fence can undo what a handler sends.
func (d *delivery) begin(ctx context.Context) error {
	if until, _ := d.opts.LeaseDeadline(); !time.Now().Before(until) {
		return &faults.Fault{Class: faults.Infrastructure, Err: projection.ErrLeaseUnconfirmed}
	}
	release, err := d.opts.Slot(ctx, d.lease.ID)
	if err != nil {
		return err
	}
	held, token, err := d.store.Begin(ctx, d.lease)
	release()
	if err != nil {
		return d.store.Fault(err)
	}
	if until, _ := d.opts.LeaseDeadline(); !time.Now().Before(until) { // the query may have taken long
		return &faults.Fault{Class: faults.Infrastructure, Err: projection.ErrLeaseUnconfirmed}
	}
	if !held {
		return fmt.Errorf("not held under epoch %d at checkpoint %d: %w", d.lease.Epoch, d.lease.Checkpoint,
			projection.ErrLeaseLost)
	}
	d.token = token
	return nil
}

// call runs the handler. A handler that does not return after its context ended is abandoned. call returns the
// handler's error, and the cause if its context ended.
func (d *delivery) call(h func(ctx context.Context, d handler.Delivery) error, giveUp func()) (err, cause error) {
	call := usercode.Go(func() error { return h(d.ctx, d) })
	d.untilEnd(call.Done())
	cause = context.Cause(d.ctx)
	err, abandoned := call.End()
	if abandoned {
		d.store.Abandoned.Add(1)
		giveUp()
	}
	return err, cause
}

// untilEnd waits until the handler has returned or its context has ended. It ends the context at the lease deadline.
func (d *delivery) untilEnd(returned <-chan struct{}) {
	for d.ctx.Err() == nil {
		until, changed := d.opts.LeaseDeadline()
		lapse := time.NewTimer(time.Until(until))
		select {
		case <-returned:
			lapse.Stop()
			return
		case <-changed:
		case <-lapse.C:
		case <-d.ctx.Done():
		}
		lapse.Stop()
		if !time.Now().Before(until) {
			// also after a late heartbeat: another node may have claimed the lease meanwhile
			d.end(projection.ErrLeaseUnconfirmed)
		}
	}
}

// ended returns the result of a delivery whose handler returned err. cause is why its context ended before that, or
// nil.
func (d *delivery) ended(err, cause error) error {
	d.mu.Lock() // an acknowledgement in progress ends first
	defer d.mu.Unlock()
	fault := d.faultOf(err, cause)
	d.over = projection.ErrDeliveryOver
	d.acks = context.WithoutCancel(d.acks) // there are no more acknowledgements
	switch {
	case fault != nil && d.batch.Replay != nil:
		return fault
	case fault == nil && d.next == len(d.batch.Events) && len(d.rejected) == 0:
		return nil
	}
	partial := &engine.PartialResult{FailureWindow: d.recent, Rejected: d.rejected}
	if fault != nil && fault.Class.MayCount() {
		// Blocked events before the failed one are parked first, so that the checkpoint can then move over the failed
		// event alone.
		if n := len(d.blocked(fault.Position)); n > 0 {
			if err := d.move(d.acks, d.batch.BlockedByStream[d.parked+n-1].Position, nil); err != nil {
				fault = d.fault
			}
		}
	}
	partial.To = d.lease.Checkpoint
	if fault != nil {
		partial.Err = fault
	}
	return partial
}

// faultOf returns what failed, or nil if the handler only left events undone.
func (d *delivery) faultOf(err, cause error) *faults.Fault {
	switch {
	case d.fault != nil:
		return d.fault
	case d.next == len(d.batch.Events):
		if err != nil {
			d.store.Log.Warn("handler failed after acknowledging everything, error ignored",
				zap.Stringer("projection", d.lease.ID), zap.Error(err))
		}
		return nil
	case errors.Is(cause, projection.ErrLeaseLost):
		return &faults.Fault{Class: faults.LeaseLost, Err: fmt.Errorf("delivery was interrupted: %w", cause)}
	case cause != nil && !errors.Is(cause, projection.ErrTimeout):
		return &faults.Fault{Class: faults.Infrastructure, Err: fmt.Errorf("delivery was interrupted: %w", cause)}
	}
	_, asks := projection.RequestedAction(err)
	switch {
	case d.next > 0 && (err == nil || cause != nil && (!asks || cutOff(err))):
		return nil
	case err == nil && cause == nil && d.batch.Replay == nil && d.Remaining() == 0:
		return nil // the delivery had to yield before its handler began an event
	case cause != nil:
		err = errors.Join(cause, err)
	case err == nil:
		err = ErrNothingDone
	}
	return d.failure(err)
}

// cutOff reports whether an error is only that of a context that ended.
func cutOff(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// failure returns the fault of the next event.
func (d *delivery) failure(err error) *faults.Fault {
	next := d.batch.Events[d.next].Position
	if named := projection.FailedPosition(err); named != 0 && named != next {
		err = fmt.Errorf("failed at position %d, the first event that is not done: %w", next, err)
	}
	fault := faults.Returned(d.store.HandlerClass(err), err)
	fault.Position = next
	return fault
}

// done records that the first n events are done. If the last of them was rejected, letter is its dead letter.
func (d *delivery) done(ctx context.Context, n int, letter *engine.Rejected) error {
	to := d.batch.To
	if n < len(d.batch.Events) {
		to = d.batch.Events[n-1].Position
	}
	if err := d.move(ctx, to, letter); err != nil {
		return err
	}
	d.next = n
	return nil
}

// blocked returns the blocked events up to a position that are not parked yet.
func (d *delivery) blocked(position int64) []event.Envelope {
	rest := d.batch.BlockedByStream[d.parked:]
	n := 0
	for n < len(rest) && rest[n].Position <= position {
		n++
	}
	return rest[:n]
}

// move moves the checkpoint and parks events on the way, in a fenced transaction. If it fails, the delivery is over,
// because only the lease's row shows the checkpoint then.
func (d *delivery) move(ctx context.Context, to int64, letter *engine.Rejected) error {
	step := engine.Batch{BlockedByStream: d.blocked(to), To: to, Replay: d.batch.Replay}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.store.MoveTime)
	defer cancel()
	defer context.AfterFunc(d.acks, cancel)()
	if err := d.moveInSlot(ctx, step, letter); err != nil {
		fault := d.store.Fault(err)
		d.stop(fault)
		return fault
	}
	blocked := len(step.BlockedByStream)
	d.lease.Checkpoint, d.parked = to, d.parked+blocked
	d.lease.Block(int64(blocked))
	return nil
}

// moveInSlot waits for a slot of the node, and moves the checkpoint.
func (d *delivery) moveInSlot(ctx context.Context, step engine.Batch, letter *engine.Rejected) error {
	release, err := d.opts.Slot(ctx, d.lease.ID)
	if err != nil {
		return err
	}
	defer release()
	return d.store.Move(ctx, d.lease, step, letter)
}
