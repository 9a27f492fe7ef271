package tests_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// The filters of dead letters name current types, and select the dead letters of older events as well. Without a
// registry they name stored types.
func TestFiltersOfDeadLettersNameCurrentTypes(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u := newUpcasting(b).appendThen()
		const many = 130 // more than a page of ids
		old := make([]event.Event, many)
		for i := range old {
			old[i] = event.New(upItem1{"1"})
		}
		u.plain.MustAppend(u.plain.Store, "many", event.Any, old...)
		var repaired atomic.Bool
		rt := u.Idle(millrace.Projection{Name: "p", OnFailure: projection.ActionPark, Retry: kit.Soon(0),
			MaxFailureShare: projection.NoLimit,
			Handler: u.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				if !repaired.Load() {
					return errors.New("on purpose")
				}
				return recordLines("p")(ctx, tx, events)
			})})
		letters := u.Store.DeadLetters(projection.ID{Name: "p"})
		of := func(eventType string) projection.DeadLetterFilter {
			return projection.DeadLetterFilter{Type: eventType}
		}
		for eventType, want := range map[string][]int{
			"up-order.v3": {2, 8, 11}, "up-left": {3, 10}, "up-right": {3, 10}, "up-plain": {0, 4, 5, 6, 9},
		} {
			found, err := letters.List(u.Ctx, projection.DeadLetterPage{DeadLetterFilter: of(eventType)})
			u.Must(err)
			var got, wants []string
			for _, l := range found {
				got = append(got, fmt.Sprint(l.Position, " ", l.Type))
			}
			for _, i := range want {
				wants = append(wants, fmt.Sprint(u.at[i], " ", storedThen[i].eventType))
			}
			mustEqual(t, eventType, got, wants)
			if n, err := letters.Count(u.Ctx, of(eventType)); err != nil || n != int64(len(want)) {
				t.Errorf("%s: %d, %v", eventType, n, err)
			}
		}
		if n, err := letters.Count(u.Ctx, of("up-item.v2")); err != nil || n != many+2 {
			t.Errorf("up-item.v2: %d, %v", n, err)
		}
		page := projection.DeadLetterPage{
			DeadLetterFilter: of("up-order.v3"), NewestFirst: true, After: u.at[11], Limit: 1,
		}
		page.Stream, page.Error = "order", "on purpose"
		if found, err := letters.List(u.Ctx, page); err != nil || len(found) != 1 || found[0].Position != u.at[8] {
			t.Errorf("the page is %+v, %v", found, err)
		}
		if n, err := u.plain.Store.DeadLetters(projection.ID{Name: "p"}).Count(u.Ctx, of("up-order")); err != nil ||
			n != 1 {
			t.Errorf("without a registry: %d, %v", n, err)
		}
		for eventType, want := range map[string]error{"up-order": eventtype.ErrOutdated,
			"up-odrer": eventtype.ErrNotRegistered} {
			_, list := letters.List(u.Ctx, projection.DeadLetterPage{DeadLetterFilter: of(eventType)})
			_, count := letters.Count(u.Ctx, of(eventType))
			_, replay := letters.Replay(u.Ctx, of(eventType), 1)
			_, discard := letters.Discard(u.Ctx, of(eventType), 1)
			_, purge := letters.Purge(u.Ctx, of(eventType), 0, 1)
			for _, err := range []error{list, count, replay, discard, purge} {
				if !errors.Is(err, want) || !strings.Contains(err.Error(), `event type "`+eventType+`"`) {
					t.Errorf("%s: error %v, want %v", eventType, err, want)
				}
			}
		}
		repaired.Store(true)
		u.Start(rt)
		done := func(what string, n int64, err error, want int64) {
			t.Helper()
			if err != nil || n != want {
				t.Errorf("%s: %d, %v, want %d", what, n, err, want)
			}
		}
		replayed, err := letters.Replay(u.Ctx, of("up-order.v3"), 2)
		done("replay", replayed.Done, err, 2)
		mustEqual(t, "replayed, the oldest first", u.recorded("p"), u.want([]int{2, 8}))
		discarded, err := letters.Discard(u.Ctx, of("up-left"), 10)
		done("discard", discarded.Done, err, 2)
		none, err := letters.Replay(u.Ctx, of("up-left"), 10)
		done("replay of none", none.Done, err, 0)
		purged, err := letters.Purge(u.Ctx, of("up-order.v3"), 0, 10)
		done("purge", purged, err, 2)
		left, err := letters.Count(u.Ctx, projection.DeadLetterFilter{})
		done("left", left, err, int64(len(storedThen)+many-4))
	})
}
