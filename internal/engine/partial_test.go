package engine

import (
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
)

// Split loses no event of a batch: each is in the part that is done, in the part that is left, or was rejected.
func TestPartialResultSplitsItsBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch := Batch{To: 100}
		partial := &PartialResult{To: rapid.Int64Range(0, 40).Draw(t, "to")}
		handled, behind, first := 0, 0, int64(0)
		for p := int64(1); p <= 30; p++ {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0: // of no concern
			case 1:
				batch.BlockedByStream = append(batch.BlockedByStream, event.Envelope{Position: p})
				if p <= partial.To {
					behind++
				}
			case 2:
				batch.Events = append(batch.Events, event.Envelope{Position: p})
				if p <= partial.To {
					partial.Rejected = append(partial.Rejected,
						Rejected{DeadLetter: projection.DeadLetter{Position: p}})
				} else if first == 0 {
					first = p
				}
			case 3:
				batch.Events = append(batch.Events, event.Envelope{Position: p})
				if p <= partial.To {
					handled++
				} else if first == 0 {
					first = p
				}
			}
		}
		done, left := partial.Split(batch)
		if len(done.Events) != handled || len(done.BlockedByStream) != behind || done.To != partial.To {
			t.Fatalf("done: %+v, want %d events and %d behind", done, handled, behind)
		}
		if first == 0 && len(left.Events) != 0 || first != 0 &&
			(!left.Alone() || left.Events[0].Position != first || left.To != first) {
			t.Fatalf("left: %+v, want %d", left, first)
		}
	})
}

func TestPartialResultIsAnError(t *testing.T) {
	if p := (&PartialResult{To: 7}); p.Error() != "done up to 7" || p.Unwrap() != nil {
		t.Error(p)
	}
	fault := &faults.Fault{Class: faults.Unclear, Err: io.EOF}
	if p := (&PartialResult{Err: fault}); p.Error() != "EOF" || !errors.Is(p, io.EOF) {
		t.Error(p)
	}
}
