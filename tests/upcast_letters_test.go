package tests_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// Dead letters have stored types, and filters name these, with and without a registry.
func TestFiltersOfDeadLettersNameStoredTypes(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u := newUpcasting(b).appendThen()
		rt := u.Idle(millrace.Projection{
			Name: "p", OnFailure: projection.ActionPark, Retry: kit.Soon(0), MaxFailureShare: projection.NoLimit,
			Handler: u.Store.Batch(func(context.Context, kit.Tx, []event.Envelope) error {
				return errors.New("on purpose")
			})})
		want := make(map[string][]string)
		for i, e := range storedThen {
			want[e.eventType] = append(want[e.eventType], fmt.Sprint(u.at[i], " ", e.eventType))
		}
		id := projection.ID{Name: "p"}
		letters := u.Store.DeadLetters(id)
		of := func(eventType string) projection.DeadLetterFilter {
			return projection.DeadLetterFilter{Type: eventType}
		}
		types := []string{"up-order", "up-order.v2", "up-order.v3", "up-plain", "up-left", "misspelt"}
		for _, eventType := range types {
			for name, letters := range map[string]projection.DeadLetters{
				"with a registry": letters, "without": u.plain.Store.DeadLetters(id),
			} {
				found, err := letters.List(u.Ctx, projection.DeadLetterPage{DeadLetterFilter: of(eventType)})
				u.Must(err)
				var got []string
				for _, l := range found {
					got = append(got, fmt.Sprint(l.Position, " ", l.Type))
				}
				mustEqual(t, name+", "+eventType, got, want[eventType])
				if n, err := letters.Count(u.Ctx, of(eventType)); err != nil || n != int64(len(want[eventType])) {
					t.Errorf("%s, %s: %d, %v", name, eventType, n, err)
				}
			}
		}
		u.Start(rt)
		replayed, err := letters.Replay(u.Ctx, of("up-order"), 10)
		if err != nil || int(replayed.Failed) != len(want["up-order"]) {
			t.Errorf("replay: %+v, %v", replayed, err)
		}
		discarded, err := letters.Discard(u.Ctx, of("up-order"), 10)
		if err != nil || int(discarded.Done) != len(want["up-order"]) {
			t.Errorf("discard: %+v, %v", discarded, err)
		}
		purged, err := letters.Purge(u.Ctx, of("up-order"), 0, 10)
		if err != nil || int(purged) != len(want["up-order"]) {
			t.Errorf("purge: %d, %v", purged, err)
		}
	})
}
