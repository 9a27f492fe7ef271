package engine

import (
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// Whatever was rejected or parked behind others: nothing of a batch is lost between what is done and what is left.
func TestPartialEndSplitsItsBatch(t *testing.T) {
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
					partial.Rejected = append(partial.Rejected, projection.DeadLetter{Position: p})
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
		if first == 0 && len(left.Events) != 0 || first != 0 && (!left.Alone() || left.Events[0].Position != first || left.To != first) {
			t.Fatalf("left: %+v, want %d", left, first)
		}
	})
}

func TestTokensAreDifferentWhateverNamesAre(t *testing.T) {
	name := rapid.OneOf(rapid.StringOf(rapid.SampledFrom([]rune(`a/%20"' ;é`))), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		id := projection.ID{Tenant: name.Draw(t, "tenant"), Name: name.Draw(t, "name"), Partition: rapid.IntRange(0, 11).Draw(t, "partition")}
		position, micros := rapid.Int64().Draw(t, "position"), rapid.Int64Range(-1<<50, 1<<50).Draw(t, "time")
		token := id.Token(event.Envelope{Position: position, Time: time.UnixMicro(micros)})
		if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"';\`, r) && r != '\'' }) {
			t.Errorf("%q does not go into a header", token)
		}
		// What it was made of can be read from it, so that no other gives the same.
		parts := strings.Split(token, "/")
		if len(parts) != 5 {
			t.Fatalf("%q has %d parts", token, len(parts))
		}
		tenant, err1 := url.PathUnescape(parts[0])
		of, err2 := url.PathUnescape(parts[1])
		if err1 != nil || err2 != nil || tenant != id.WithDefaults().Tenant || of != id.Name ||
			parts[2] != strconv.Itoa(id.Partition) || parts[3] != strconv.FormatInt(position, 10) || parts[4] != strconv.FormatInt(micros, 36) {
			t.Errorf("%q of %+v", token, id)
		}
	})
}
