package engine

import (
	"fmt"

	"github.com/millrace-go/millrace/projection"
)

// PartialResult is what Apply returns where it does not move the checkpoint in one go: what is done of the batch is done for
// good, whatever happened to the rest.
type PartialResult struct {
	// To is where the checkpoint is now. All events up to it were handled, rejected, or parked behind others.
	To int64
	// Rejected are the dead letters among them that the handler parked.
	Rejected []projection.DeadLetter
	// FailureWindow remembers the events that were handled and rejected.
	FailureWindow FailureWindow
	// Err is what happened to the first event beyond To; nil tells that nothing did, and that it comes with the next batch.
	Err error
}

func (p *PartialResult) Error() string {
	if p.Err == nil {
		return fmt.Sprintf("done up to %d", p.To)
	}
	return p.Err.Error()
}

// Unwrap returns what happened to the first event that is left.
func (p *PartialResult) Unwrap() error { return p.Err }

// Split tells apart what is done of a batch and the first event that is left, which stands alone: it is the one that Err
// is about, since the events come in order. Both have no events where there are none. It is pure.
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
