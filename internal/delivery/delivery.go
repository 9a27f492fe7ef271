package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/policy"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
)

// ErrNothingDone is the fault of a handler that returned nil and did nothing.
var ErrNothingDone = errors.New("the handler returned nil, but neither acknowledged nor rejected an event")

// delivery implements engine.Delivery. Each acknowledgement moves the checkpoint.
type delivery struct {
	store Port
	batch engine.Batch
	opts  engine.DeliverOptions
	token string // of the projection
	// ctx is the handler's context, and end ends it. acks is the context of acknowledgements.
	ctx  context.Context
	end  context.CancelCauseFunc
	acks context.Context

	mu sync.Mutex
	// lease has the checkpoint after the last acknowledgement. The first next events are done, and the first parked of
	// the blocked events are parked.
	lease        engine.Lease
	next, parked int
	recent       engine.FailureWindow
	rejected     []engine.Rejected
	// over is the error of further acknowledgements, nil while they are accepted. fault is what ended the delivery
	// before its handler did.
	over  error
	fault *faults.Fault
}

func (d *delivery) Events() []event.Envelope { return d.batch.Events }

func (d *delivery) Token(e event.Envelope) string { return deliveryToken(d.token, e) }

// deliveryToken returns the projection's token, the event's position, and the time of its append, which distinguishes
// an event that a crash lost from a later one at its position. The parts of a split event have tokens of their own.
func deliveryToken(projection string, e event.Envelope) string {
	token := fmt.Sprintf("%s/%d/%s", projection, e.Position, strconv.FormatInt(e.Time.UnixMicro(), 36))
	if e.Part > 0 {
		token += "/" + strconv.Itoa(e.Part)
	}
	return token
}

func (d *delivery) Remaining() time.Duration {
	select {
	case <-d.batch.Yield:
		return 0
	case <-d.ctx.Done():
		return 0
	default:
	}
	deadline, _ := d.ctx.Deadline()
	until, _ := d.opts.LeaseDeadline()
	return max(0, min(time.Until(deadline), time.Until(until)))
}

func (d *delivery) Ack(ctx context.Context, position int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ack(ctx, position); err != nil {
		return fmt.Errorf("acknowledge up to position %d of %s: %w", position, d.lease.ID, err)
	}
	return nil
}

func (d *delivery) ack(ctx context.Context, position int64) error {
	at, err := d.at(position)
	if err != nil {
		return err
	}
	n := at + 1 - d.next
	if err := d.done(ctx, at+1, nil); err != nil {
		return err
	}
	d.recent.Handled(n)
	return nil
}

func (d *delivery) Reject(ctx context.Context, position int64, cause error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.reject(ctx, position, cause); err != nil {
		return fmt.Errorf("reject position %d of %s: %w", position, d.lease.ID, err)
	}
	return nil
}

func (d *delivery) reject(ctx context.Context, position int64, cause error) error {
	if cause == nil {
		return errors.New("the error must not be nil")
	}
	cause = usercode.Take(cause)
	at, err := d.at(position)
	if err != nil {
		return err
	}
	if at != d.next {
		return fmt.Errorf("the next event is at position %d", d.batch.Events[d.next].Position)
	}
	e := d.batch.Events[at]
	failure := policy.Count(d.lease.ID, e, d.lease.AttemptsAt(e.Position), policy.Rejection(&d.opts.Policy, cause),
		usercode.StackOf(cause))
	about := policy.Circumstances{Policy: &d.opts.Policy, FailureWindow: d.recent, Parked: d.lease.ParkedFailures()}
	action := about.Decide(failure).Action
	if !d.parks(action, at) || d.batch.Replay != nil {
		fault := d.failure(failure.Err)
		fault.SetClass(faults.Handler) // a rejection is the handler's decision
		d.stop(fault)
		return projection.ErrDeliveryOver
	}
	letter := engine.Rejected{
		DeadLetter: projection.DeadLetter{Position: e.Position, Stream: e.Stream, Version: e.Version, Type: e.Type,
			Error: failure.Err.Error(), Stack: failure.Stack, Attempts: failure.Attempt},
		ParkStream: action == projection.ActionParkStream,
	}
	if err := d.done(ctx, at+1, &letter); err != nil {
		return err
	}
	d.lease.Parked++
	d.rejected = append(d.rejected, letter)
	d.recent.Failed()
	return nil
}

// parks reports whether the delivery itself carries out the action for the event at an index. A stream is parked here
// only if no later event of the delivery is of that stream: the handler has it already.
func (d *delivery) parks(action projection.Action, at int) bool {
	stream := d.batch.Events[at].Stream
	return action == projection.ActionPark || action == projection.ActionParkStream &&
		!slices.ContainsFunc(d.batch.Events[at+1:], func(e event.Envelope) bool { return e.Stream == stream })
}

// at returns the index of an event that is not done yet.
func (d *delivery) at(position int64) (int, error) {
	at, found := slices.BinarySearchFunc(d.batch.Events, position,
		func(e event.Envelope, p int64) int { return cmp.Compare(e.Position, p) })
	switch {
	case d.over != nil:
		return 0, d.over
	case !found:
		return 0, errors.New("the delivery has no event at this position")
	case at < d.next:
		return 0, errors.New("it was acknowledged or rejected before")
	}
	return at, nil
}

// stop ends the delivery and its handler's context with a fault. The handler's own error is then ignored.
func (d *delivery) stop(fault *faults.Fault) {
	d.fault, d.over = fault, projection.ErrDeliveryOver
	if fault.Class != faults.Handler {
		d.over = fmt.Errorf("%w: %w", projection.ErrDeliveryOver, fault)
	}
	d.end(d.over)
}
