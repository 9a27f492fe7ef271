package tests_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/tests/kit"
)

type events = iter.Seq2[event.Envelope, error]

// lines reads at most n events. For an event whose upcaster fails, the line has its stored type.
func (u *upcasting) lines(read events, n int) (lines []string) {
	for e, err := range read {
		var failed *event.DecodeError
		switch {
		case err == nil:
			lines = append(lines, fmt.Sprint(e.Position, " ", line(e)))
		case errors.As(err, &failed) && errors.Is(err, eventtype.ErrUpcast) && failed.Position == e.Position:
			lines = append(lines, fmt.Sprint(e.Position, " failed ", e.Type))
		default:
			u.T.Error(err)
		}
		if len(lines) == n {
			break
		}
	}
	return lines
}

// withFailed adds the lines of events whose upcasters fail.
func (u *upcasting) withFailed(lines []string, indexes ...int) []string {
	for _, i := range indexes {
		lines = append(lines, fmt.Sprint(u.at[i], " failed ", storedThen[i].eventType))
	}
	slices.SortStableFunc(lines, func(a, b string) int { return positionOf(a) - positionOf(b) })
	return lines
}

func positionOf(line string) (position int) {
	_, _ = fmt.Sscan(line, &position)
	return position
}

// Every reader gets current events, in all shapes of old ones. A selection of a current type selects the old events as
// well.
func TestReadersGetCurrentEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u := newUpcasting(b).appendThen()
		all := u.withFailed(u.want(allThen()), 4, 5)
		for name, c := range map[string]struct {
			read events
			want []string
		}{
			"stream of one step": {u.Store.ReadStream(u.Ctx, "item", 1), u.want(ofStream("item"))},
			"stream of a chain":  {u.Store.ReadStream(u.Ctx, "order", 1), u.want(ofStream("order"))},
			"rest of a stream":   {u.Store.ReadStream(u.Ctx, "order", 2), u.want([]int{8, 11})},
			"stream of splits":   {u.Store.ReadStream(u.Ctx, "both", 1), u.want(ofStream("both"))},
			"stream of renamed":  {u.Store.ReadStream(u.Ctx, "plain", 1), u.want(ofStream("plain"))},
			"stream that fails":  {u.Store.ReadStream(u.Ctx, "bad", 1), u.withFailed(u.want([]int{6}), 4)},
			"stream that panics": {u.Store.ReadStream(u.Ctx, "worse", 1), u.withFailed(nil, 5)},
			"all":                {u.Store.ReadAll(u.Ctx, event.ReadOptions{}), all},
			"all of a stream":    {u.Store.ReadAll(u.Ctx, event.ReadOptions{Stream: "both"}), u.want(ofStream("both"))},
			"all after": {
				u.Store.ReadAll(u.Ctx, event.ReadOptions{After: u.at[5]}), u.want([]int{6, 7, 8, 9, 10, 11}),
			},
			"a type of a chain": {
				u.Store.ReadAll(u.Ctx, event.ReadOptions{Types: []string{"up-order.v3"}}),
				u.want(allThen(), "up-order.v3"),
			},
			"a type of a split": {
				u.Store.ReadAll(u.Ctx, event.ReadOptions{Types: []string{"up-right"}}), u.want(allThen(), "up-right"),
			},
			"types that may fail": {u.Store.ReadAll(u.Ctx, event.ReadOptions{Types: []string{"up-plain", "up-left"}}),
				u.withFailed(u.want(allThen(), "up-plain", "up-left"), 4, 5)},
		} {
			mustEqual(t, name, u.lines(c.read, -1), c.want)
		}
		ctx, cancel := context.WithTimeout(u.Ctx, 30*time.Second)
		defer cancel()
		mustEqual(t, "follow", u.lines(u.Store.Follow(ctx, event.ReadOptions{}), len(all)), all)
		for _, eventType := range []string{"up-item.v2", "up-order.v3", "up-right"} {
			want := u.want(allThen(), eventType)
			mustEqual(t, "follow "+eventType,
				u.lines(u.Store.Follow(ctx, event.ReadOptions{Types: []string{eventType}}), len(want)), want)
		}
		want := u.want(ofStream("order"))
		mustEqual(t, "follow a stream", u.lines(u.Store.Follow(ctx, event.ReadOptions{Stream: "order"}), len(want)),
			want)
	})
}

// A follower that has caught up gets current events of what is appended then, also by a release without a registry.
func TestFollowersGetCurrentEventsOfLaterAppends(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u := newUpcasting(b)
		ctx, cancel := context.WithTimeout(u.Ctx, 30*time.Second)
		defer cancel()
		next, stop := iter.Pull2(u.Store.Follow(ctx, event.ReadOptions{Types: []string{"up-item.v2"}}))
		defer stop()
		for i, by := range []*kit.Bundle{u.Bundle, u.plain} {
			u.MustAppend(by.Store, "s", event.Any, event.New(upItem1{Amount: fmt.Sprint(i)}), event.New(upPlain{}),
				event.New(upItem{7}))
			for _, want := range []string{fmt.Sprintf(`up-item.v2 0 {"cents":%d}`, 100*i), `up-item.v2 0 {"cents":7}`} {
				if e, err, _ := next(); err != nil || line(e) != want {
					t.Errorf("%s, %v, want %s", line(e), err, want)
				}
			}
		}
	})
}

// Copies and exports read what is stored, by types as they are stored. Without a registry, nothing else can be read.
func TestStoredEventsCanBeRead(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u := newUpcasting(b).appendThen()
		var want, items []string
		for i, e := range storedThen {
			want = append(want, fmt.Sprint(u.at[i], " ", e.eventType, " 0 ", e.body))
			if e.eventType == "up-item" {
				items = append(items, want[i])
			}
		}
		mustEqual(t, "read", u.lines(u.Store.ReadAll(u.Ctx, event.ReadOptions{Stored: true}), -1), want)
		mustEqual(t, "read a type",
			u.lines(u.Store.ReadAll(u.Ctx, event.ReadOptions{Stored: true, Types: []string{"up-item"}}), -1), items)
		mustEqual(t, "follow", u.lines(u.Store.Follow(u.Ctx, event.ReadOptions{Stored: true}), len(want)), want)
		mustEqual(t, "without a registry", u.lines(u.plain.Store.ReadAll(u.Ctx, event.ReadOptions{}), -1), want)
	})
}

// A selection must name current types. An old type and a misspelt type are errors. Otherwise the read would return no
// events.
func TestSelectionsOfOtherTypesAreErrors(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u := newUpcasting(b).appendThen()
		for eventType, c := range map[string]struct {
			is   error
			says string
		}{
			"up-order": {eventtype.ErrOutdated, `event type "up-order" is outdated: it becomes "up-order.v3"`},
			"up-both": {
				eventtype.ErrOutdated, `event type "up-both" is outdated: it becomes "up-left" and "up-right"`,
			},
			"up-itm": {eventtype.ErrNotRegistered, `event type "up-itm" is not registered`},
		} {
			opts := event.ReadOptions{Types: []string{"up-plain", eventType}}
			for name, read := range map[string]events{"read": u.Store.ReadAll(u.Ctx, opts),
				"follow": u.Store.Follow(u.Ctx, opts)} {
				_, err := kit.Collect(read)
				if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s %s: error %v, want one with %q", name, eventType, err, c.says)
				}
			}
		}
	})
}

// No upcaster is called for a redacted event, which gets the name of each type that it may have become.
func TestRedactedEventsAreReadAsCurrentTypes(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u := newUpcasting(b).appendThen()
		for _, stream := range []string{"order", "both", "bad"} {
			_, err := u.Store.EraseStream(u.Ctx, stream, "a request")
			u.Must(err)
		}
		var got []string
		for _, stream := range []string{"order", "both", "bad"} {
			for _, e := range u.Collect(u.Store.ReadStream(u.Ctx, stream, 1)) {
				got = append(got, fmt.Sprint(e.Version, " ", e.Type))
				if !e.Redacted() {
					t.Errorf("%+v", e)
				}
			}
		}
		mustEqual(t, "redacted", got, []string{"1 up-order.v3", "2 up-order.v3", "3 up-order.v3",
			"1 up-left", "1 up-right", "2 up-left", "2 up-right", "1 up-plain", "2 up-plain"})
	})
}
