package engine

import "github.com/millrace-go/millrace/event"

// Batch is what one transaction of a projection covers.
type Batch struct {
	// Events are the ones that concern the projection, in global order.
	Events []event.Envelope
	// Behind are the ones among them, in order, that are parked behind one of their stream instead.
	BlockedByStream []event.Envelope
	// To is the checkpoint after the batch; it may lie beyond the last of Events.
	To int64
	// Replay tells that the batch is a dead letter's one event, which is resolved with it. To is the checkpoint then.
	Replay *Replay
	// FailureWindow is what became of the events before, for an Apply that parks events by itself.
	FailureWindow FailureWindow
	// Yield is closed when somebody waits for the projection to come to rest, so that what can stop in the middle does. Nil
	// where nobody will.
	Yield <-chan struct{}
	// Fresh asks for a connection that no batch has used before.
	Fresh bool
}

// Alone tells that the batch is one event, with nothing before it that is parked: a failure of it is that event's, and the
// checkpoint may move over it.
func (b Batch) Alone() bool {
	return len(b.Events) == 1 && (len(b.BlockedByStream) == 0 || b.BlockedByStream[0].Position > b.Events[0].Position)
}
