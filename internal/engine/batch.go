package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// ApplyFunc runs one batch of a projection. It calls the handler, parks the events whose streams are parked, resolves
// the dead letter of a replay, advances the checkpoint from lease.Checkpoint to batch.To under the lease's fence, and
// commits all or nothing. A delivery works in steps, each of them fenced. It returns a *PartialResult if it did not
// reach the end of the batch, or if it rejected events.
type ApplyFunc func(ctx context.Context, lease Lease, batch Batch) error

// ApplyOptions are settings of millrace.Projection for its batches. Their defaults are set.
type ApplyOptions struct {
	Timeout     time.Duration
	AsyncCommit bool
}

// DeliverOptions are settings of millrace.Projection for its deliveries, with their defaults, and what a delivery needs
// of its runtime.
type DeliverOptions struct {
	Timeout time.Duration
	Policy  Policy
	// LeaseDeadline ends deliveries when the node cannot be sure of its leases any more.
	LeaseDeadline LeaseDeadline
	// Slot waits for a connection's slot before each statement of a delivery, mainly acknowledgements. It returns a
	// function that releases the slot.
	Slot func(ctx context.Context, id projection.ID) (release func(), err error)
}

// Batch is the work of one transaction of a projection.
type Batch struct {
	// Events go to the handler, in global order.
	Events []event.Envelope
	// BlockedByStream are parked instead, in order, since their streams are parked.
	BlockedByStream []event.Envelope
	// To is the checkpoint after the batch; it may lie beyond the last of Events.
	To int64
	// Replay is the dead letter that the batch resolves. Events has its one event then, and To is the present
	// checkpoint.
	Replay *Replay
	// FailureWindow has the outcomes of the events before, for a delivery, which parks events itself.
	FailureWindow FailureWindow
	// Yield is closed when the projection should come to rest soon: a delivery stops after the event under way. It may
	// be nil.
	Yield <-chan struct{}
	// Fresh asks for a connection that no batch has used before. A server without free connections may give none.
	Fresh bool
	// Apart are the rows of the leases of other projections, in ascending order. No batch of theirs may run at the same
	// time.
	Apart []int32
	// Opening is the begin of the batch, if it was made in advance. It may have been sent.
	Opening Opening
	// Slot is the slot that the batch runs in. It is nil if the slot cannot be promised to another batch.
	Slot Slot
	// Connect waits for the slot of a connection, and returns a function that releases the slot. It is nil if there are
	// no such slots. The slot is for the batch alone, or, if tenants are named, for a message with batches of these.
	// The context ends because of ErrNotNeeded if another message has them: that is no failure.
	Connect func(ctx context.Context, tenants []string) (release func(), err error)
	// Connected reports that the batch has such a slot. Then it does not wait until another one has sent it: that may
	// wait for this slot.
	Connected bool
}

// ErrNotNeeded is why a wait for a connection ends that is not needed any more.
var ErrNotNeeded = errors.New("another message has the batch")

// Opening is the begin of the transaction of a batch that waits for its slot. The batch before it in that slot may send
// it along with its end.
type Opening interface {
	// Drop rolls the transaction back. It does nothing if the transaction was not begun or was used.
	Drop()
}

// Slot is a slot whose batch is about to end.
type Slot interface {
	// Promise promises the slot to the batch that gets it next. It returns the Opening of that batch, nil if it has
	// none. It is called once at most.
	Promise() Opening
	// Pass passes the slot on to that batch, whose Opening is begun. It returns false if that batch no longer waits for
	// this slot.
	Pass() bool
}

// Alone reports whether the batch is one event, without parked events before it. Then a failure is that event's, and
// the checkpoint may move over it.
func (b Batch) Alone() bool {
	return len(b.Events) == 1 && (len(b.BlockedByStream) == 0 || b.BlockedByStream[0].Position > b.Events[0].Position)
}

// PartialResult is returned by an ApplyFunc that moved the checkpoint in steps. What is done up to To stays done.
type PartialResult struct {
	// To is the present checkpoint. All events up to it were handled, rejected, or parked after others of their
	// streams.
	To int64
	// Rejected are the dead letters among them that the handler parked.
	Rejected []Rejected
	// FailureWindow has the outcomes of the events up to To.
	FailureWindow FailureWindow
	// Err is the error of the first event after To. It is nil if nothing failed: that event comes with the next batch.
	Err error
}

// Rejected is the dead letter of an event that the handler of a delivery rejected. With ParkStream, its stream is
// parked with it.
type Rejected struct {
	projection.DeadLetter
	ParkStream bool
}

func (p *PartialResult) Error() string {
	if p.Err == nil {
		return fmt.Sprintf("done up to %d", p.To)
	}
	return p.Err.Error()
}

// Unwrap returns the error of the first event after To.
func (p *PartialResult) Unwrap() error { return p.Err }

// Split returns the part of a batch that is done, without its rejected events, and the first event after it, which Err
// is about. Either may have no events.
func (p *PartialResult) Split(b Batch) (done, left Batch) {
	done, left = Batch{To: p.To}, Batch{To: p.To}
	rejected := make(map[int64]bool, len(p.Rejected))
	for _, letter := range p.Rejected {
		rejected[letter.Position] = true
	}
	for i, e := range b.Events {
		if e.Position > p.To {
			left.Events, left.To = b.Events[i:i+1:i+1], e.Position
			break
		}
		if !rejected[e.Position] {
			done.Events = append(done.Events, e)
		}
	}
	n := 0
	for n < len(b.BlockedByStream) && b.BlockedByStream[n].Position <= p.To {
		n++
	}
	done.BlockedByStream = b.BlockedByStream[:n:n]
	return done, left
}
