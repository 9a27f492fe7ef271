package millrace

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/handler"
)

// Delivery is a batch of events for a function of Deliver, which acknowledges them. It is safe for concurrent use until
// the function returns.
type Delivery struct{ d handler.Delivery }

// Events returns the events of the delivery, in order.
func (d *Delivery) Events() []event.Envelope { return d.d.Events() }

// Token returns a text that is the same for every delivery of an event to this projection, on any node, also for the
// replay of a dead letter. It is different for every other event, partition, projection and tenant. It is printable
// ASCII without spaces and quotes. Send it to the receiver as the idempotency key, so that the receiver can detect
// repeats.
//
// A copy of a database, such as a restored backup, gives the same tokens for the events that it holds. If a crash of
// the server loses an event, the effects of its deliveries stay.
func (d *Delivery) Token(e event.Envelope) string { return d.d.Token(e) }

// Remaining returns how much time is left until the timeout, or until the node cannot be sure of its leases any more.
// The latter is at most 0.9 of Config.LeaseDuration away, and moves with each heartbeat. Remaining returns 0 when ctx
// has ended. It also returns 0 when the projection is about to be paused or moved. Then ctx has not ended: finish and
// acknowledge the event in progress, and begin no other.
func (d *Delivery) Remaining() time.Duration { return d.d.Remaining() }

// Ack acknowledges all events up to position. When it returns nil, this is durable: it was committed in a transaction
// of its own under the lease's fence, and none of the events is delivered again. Ack returns an error and changes
// nothing if the position is not in this delivery, or was acknowledged or rejected before.
//
// Any other error ends the delivery and ctx: the lease was lost, or the database could not be reached. The events are
// delivered again by the holder of the lease, unless the acknowledgement succeeded and only its answer was lost.
// Nothing is counted against an event then, whatever the function returns.
//
// Ack continues if ctx ends, since the effect has already happened. It gives up after 10 s.
func (d *Delivery) Ack(ctx context.Context, position int64) error { return d.d.Ack(ctx, position) }

// Reject parks the event at position and its stream, with cause as its error, and the delivery continues after it. Both
// are one transaction under the lease's fence. The event is parked alone if Projection.OnFailure is
// projection.ActionPark, if Projection.AnyOrder is set, or if cause is wrapped in projection.Park. The event must be
// the first that is not acknowledged: Reject refuses others, and changes nothing. Other errors end the delivery, as
// with Ack.
//
// Reject also ends the delivery, with projection.ErrDeliveryOver, if the event cannot simply be parked: the delivery
// has a later event of the stream to be parked, cause requests something other than projection.Park or ParkStream, or
// Projection.MaxParked or MaxFailureShare allows no more. Then the event has failed, which is counted. The projection
// parks the stream, does what cause requests, or stops, and the other events are delivered after that. A replay ends in
// the same way: its dead letter stays parked.
func (d *Delivery) Reject(ctx context.Context, position int64, cause error) error {
	return d.d.Reject(ctx, position, cause)
}
