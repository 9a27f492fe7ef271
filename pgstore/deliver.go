package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

var errNothingDone = errors.New("the handler returned without an error, but had neither acknowledged nor rejected an event")

// DeliveryHandler has effects outside of the database: it sends, posts, publishes. It gets the events of one delivery and
// says what is done by Delivery.Ack and Delivery.Reject, as it goes.
//
// What is promised: every event is delivered at least once, and in order: an event comes only after those before it were
// acknowledged, rejected, or given up by the projection's policy. What was acknowledged does not come again.
//
// An event that was not acknowledged is delivered again, with the same Token. So an effect is repeated only where its
// acknowledgement is missing: where the process, its session connection or its lease was lost between the two; where Ack
// returned an error; and where the handler itself failed after the effect, was stopped by its deadline or past
// Config.GracePeriod, or left the event unacknowledged.
//
// No two owners are at it at once as long as handlers end when ctx ends. ctx ends at Projection.Timeout; as soon as the
// session connection is lost, since others may then take the node for dead after 0.3 of Config.FailureDetection; and at 0.9 of
// Config.LeaseDuration after the last heartbeat that arrived, which leaves a tenth of it before others may claim. Beyond that a
// delivery can overlap with that of the next owner: where the handler ignores ctx, for as long as it does; where the process
// was frozen, or the server saw the session end and the node was not told, for as long as that is not noticed, in the latter
// case at most until the 0.9. No Ack of an earlier owner has an effect then, and a receiver that remembers tokens sees one
// event.
//
// A handler that has not returned 2 s after the end of ctx is left to itself, as any other; its event may be delivered again
// while it is still at it.
//
// It returns nil when it is done, also where events are left: they are delivered again at once. It has failed where it
// returns nil without any event done while Remaining is not 0. An error, a panic or the end of its goroutine is a failure of
// the first event that is neither acknowledged nor rejected, and is counted for that event, even where the error names
// another by projection.At. The projection's policy decides then, and projection.Retry, Park, ParkStream, Skip and Stop ask as
// usual: so projection.Retry(err) asks for the rest after a delay. A deadline is a failure only of an event that had all of
// it for itself: where others were done before, the rest is delivered again, unless the handler asks for something with an
// error that says more than that a context had ended.
type DeliveryHandler func(ctx context.Context, d *Delivery) error

// Delivered is one event of a delivery.
type Delivered struct {
	event.Envelope
	// Token is the same each time the event is delivered to this projection. See Delivery.Token.
	Token string
}

// DeliveredHandler is a DeliveryHandler for one event at a time. The event is acknowledged when it returns nil. Where
// what is left of the budget is not twice what the slowest event so far took, the rest comes with the next delivery, so that
// none is cut off under way.
type DeliveredHandler func(ctx context.Context, e Delivered) error

// DeliverEach makes a DeliveryHandler of h.
func DeliverEach(h DeliveredHandler) DeliveryHandler {
	return func(ctx context.Context, d *Delivery) error {
		var longest time.Duration
		for i, e := range d.Events() {
			// What is begun had better not be cut off: it would be repeated.
			if i > 0 && d.Remaining() <= 2*longest {
				return nil
			}
			began := time.Now()
			if err := h(ctx, Delivered{Envelope: e, Token: d.Token(e)}); err != nil {
				return err
			}
			if err := d.Ack(ctx, e.Position); err != nil {
				return err
			}
			longest = max(longest, time.Since(began))
		}
		return nil
	}
}

// DeliverOptions are the bounds of a projection's deliveries.
type DeliverOptions struct {
	// Deadline bounds one call of the handler. Default 30 s.
	Timeout time.Duration
	// Policy says how much may be rejected before the projection stops.
	Policy engine.Policy
	// Trust ends deliveries when the node cannot be sure of its leases any more. Default: it always can.
	Trust engine.LeaseDeadline
	// Slot waits for a connection's slot before each statement of a delivery, acknowledgements above all, and returns a
	// function that releases it. Default: statements do not wait.
	Slot func(ctx context.Context) (release func(), err error)
}

// Delivery is a batch of events that is handled outside of a transaction, and acknowledged as that goes on. It is safe for
// concurrent use, and of no use after the handler has returned.
type Delivery struct {
	store    *Store
	batch    engine.Batch
	opts     DeliverOptions
	deadline time.Time
	// ctx is the handler's, and end ends it. acks ends when acknowledgements are not waited for any more.
	ctx  context.Context
	end  context.CancelCauseFunc
	acks context.Context

	mu sync.Mutex
	// lease has the checkpoint as acknowledgements moved it. The first next events are done, and the first behind of those
	// that are parked behind others.
	lease        engine.Lease
	next, behind int
	recent       engine.FailureWindow
	rejected     []projection.DeadLetter
	// over is why nothing is acknowledged any more; fault is what ended the delivery before its handler did.
	over  error
	fault *engine.Fault
}

// Events are what is delivered, in order.
func (d *Delivery) Events() []event.Envelope { return d.batch.Events }

// Token is the same for every delivery of an event to this projection, also for the replay of a dead letter, on whatever
// node; and different for every other event, partition, projection and tenant. It is printable ASCII without spaces and
// quotes. Receivers that remember it can tell repeats: send it along as their idempotency key.
//
// A copy of a database, such as a restored backup, gives the same tokens for the events that it holds. Deliveries of an event
// that a crash of the server lost are not taken back.
func (d *Delivery) Token(e event.Envelope) string { return d.lease.ID.Token(e) }

// Remaining is how much time is left, as far as is known now: until the deadline, or until the node may no longer be sure of
// its leases. That is never more than 0.9 of Config.LeaseDuration, and grows again with each heartbeat that arrives. It is 0
// when ctx has ended, and also when somebody waits for the projection to come to rest, to pause it, to stop it or to move it:
// then ctx goes on, what was begun should be finished and acknowledged, and nothing more should be begun.
func (d *Delivery) Remaining() time.Duration {
	select {
	case <-d.batch.Yield:
		return 0
	case <-d.ctx.Done():
		return 0
	default:
	}
	until, _ := d.trust()
	return max(0, min(time.Until(d.deadline), time.Until(until)))
}

func (d *Delivery) trust() (until time.Time, changed <-chan struct{}) {
	if d.opts.Trust == nil {
		return time.Now().Add(time.Hour), nil
	}
	return d.opts.Trust()
}

// Ack says that everything up to and with the event at position is done. When it returns nil, that is kept durably, in a
// transaction of its own under the lease's fence: nothing of it is delivered again, whatever happens. A position that is
// not of this delivery, or that was acknowledged or rejected before, is refused, and changes nothing.
//
// Any other error ends the delivery, and ctx with it: the lease was lost, or the database could not be reached. The events
// are delivered again, by whoever holds the lease, unless the acknowledgement succeeded and only its answer was lost.
// Nothing is counted against an event then, whatever the handler returns.
//
// It does not end with ctx, since the effect has been had by then, but after 10 s.
func (d *Delivery) Ack(ctx context.Context, position int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, err := d.at(position)
	if err == nil {
		done := at + 1 - d.next
		if err = d.settle(ctx, at+1, nil); err == nil {
			d.recent.Handled(done)
		}
	}
	if err != nil {
		return fmt.Errorf("acknowledge up to position %d of %s: %w", position, d.lease.ID, err)
	}
	return nil
}

// Reject parks the event at position, with cause as its error, and goes on behind it, in one transaction under the lease's
// fence. It has to be the next event that is not acknowledged; for another one it is refused, and changes nothing. Any
// other error ends the delivery, as with Ack.
//
// It also ends the delivery, with projection.ErrDeliveryOver, where it is not this event alone that is to be parked: where cause is
// wrapped in another wish than projection.Park; where Projection.OnFailure parks streams; where Projection.MaxParked or
// MaxFailureShare does not allow one more. Then the event has failed, which is counted, the projection carries the wish out or
// stops as usual, and what is left is delivered after that. So does a replay: its letter stays parked.
func (d *Delivery) Reject(ctx context.Context, position int64, cause error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.reject(ctx, position, cause); err != nil {
		return fmt.Errorf("reject position %d of %s: %w", position, d.lease.ID, err)
	}
	return nil
}

func (d *Delivery) reject(ctx context.Context, position int64, cause error) error {
	if cause == nil {
		return errors.New("there is no error to reject it with")
	}
	at, err := d.at(position)
	if err != nil {
		return err
	}
	if at != d.next {
		return fmt.Errorf("the next event is at position %d", d.batch.Events[d.next].Position)
	}
	e := d.batch.Events[at]
	failure := machine.Count(d.lease.ID, e, d.lease.AttemptsAt(e.Position), machine.Rejection(&d.opts.Policy, cause), stackOf(cause))
	// The events of the batch that are parked behind others need their room, too.
	about := machine.Circumstances{Policy: &d.opts.Policy, Window: d.recent, Parked: d.lease.Parked + int64(len(d.batch.BlockedByStream)-d.behind)}
	if about.Decide(failure).Action != projection.ActionPark || d.batch.Replay != nil {
		fault := d.failure(failure.Err)
		fault.Class, fault.Probe = engine.HandlerFault, false // the handler says so, whatever it met
		d.stop(fault)
		return projection.ErrDeliveryOver
	}
	letter := projection.DeadLetter{Position: e.Position, Stream: e.Stream, Version: e.Version, Type: e.Type,
		Error: failure.Err.Error(), Stack: failure.Stack, Attempts: failure.Attempt}
	if err := d.settle(ctx, at+1, &letter); err != nil {
		return err
	}
	d.lease.Parked++
	d.rejected = append(d.rejected, letter)
	d.recent.Failed()
	return nil
}

// at finds an event that is not done yet.
func (d *Delivery) at(position int64) (int, error) {
	at, found := slices.BinarySearchFunc(d.batch.Events, position, func(e event.Envelope, p int64) int { return cmp.Compare(e.Position, p) })
	switch {
	case d.over != nil:
		return 0, d.over
	case !found:
		return 0, errors.New("this delivery has no event there")
	case at < d.next:
		return 0, errors.New("it was acknowledged or rejected before")
	}
	return at, nil
}

// stop ends the delivery and its handler's context: what happened decides, whatever the handler returns.
func (d *Delivery) stop(fault *engine.Fault) {
	d.fault, d.over = fault, projection.ErrDeliveryOver
	if fault.Class != engine.HandlerFault {
		d.over = fmt.Errorf("%w: %w", projection.ErrDeliveryOver, fault)
	}
	d.end(d.over)
}
