package tests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/tests/kit"
)

// The event types of the tests of upcasters. "up-item" becomes "up-item.v2", "up-order" becomes "up-order.v3" in two
// steps, "up-both" is split, and "up-bad" and "up-worse" become "up-plain" once they are mended.
type (
	upPlain struct{ N int }
	upItem1 struct {
		Amount string `json:"amount"`
	}
	upItem struct {
		Cents int `json:"cents"`
	}
	upOrder1 struct {
		A int `json:"a"`
	}
	upOrder2 struct {
		B int `json:"b"`
	}
	upOrder struct {
		C int `json:"c"`
	}
	upBoth  struct{ N int }
	upLeft  struct{ L int }
	upRight struct{ R int }
	upBad   struct{}
)

func (upPlain) EventType() string  { return "up-plain" }
func (upItem1) EventType() string  { return "up-item" }
func (upItem) EventType() string   { return "up-item.v2" }
func (upOrder1) EventType() string { return "up-order" }
func (upOrder2) EventType() string { return "up-order.v2" }
func (upOrder) EventType() string  { return "up-order.v3" }
func (upBoth) EventType() string   { return "up-both" }
func (upLeft) EventType() string   { return "up-left" }
func (upRight) EventType() string  { return "up-right" }
func (upBad) EventType() string    { return "up-bad" }

// upcasting is a store with a registry, and the same store without one.
type upcasting struct {
	*kit.Bundle
	plain *kit.Bundle
	// mended makes the upcasters of "up-bad" and "up-worse" succeed.
	mended atomic.Bool
	// at are the positions of the events that were appended.
	at []int64
}

func newUpcasting(b *kit.Bundle, around ...event.AppendMiddleware) *upcasting {
	u := &upcasting{plain: b}
	types, err := eventtype.New(
		eventtype.Of[upPlain](), eventtype.Of[upLeft](), eventtype.Of[upRight](),
		eventtype.Upcast(func(old upItem1) (upItem, error) {
			var euros int
			_, err := fmt.Sscan(old.Amount, &euros)
			return upItem{100 * euros}, err
		}),
		eventtype.Upcast(func(old upOrder1) (upOrder2, error) { return upOrder2{old.A + 1}, nil }),
		eventtype.Upcast(func(old upOrder2) (upOrder, error) { return upOrder{old.B * 10}, nil }),
		eventtype.Split(func(old upBoth) ([]event.Event, error) {
			return []event.Event{event.New(upLeft{old.N}), event.New(upRight{-old.N})}, nil
		}, "up-left", "up-right"),
		eventtype.Renamed("up_plain", "up-plain"),
		eventtype.Upcast(func(upBad) (upPlain, error) {
			if !u.mended.Load() {
				return upPlain{}, errors.New("on purpose")
			}
			return upPlain{51}, nil
		}),
		eventtype.UpcastJSON("up-worse", "up-plain", func(json.RawMessage) (json.RawMessage, error) {
			if !u.mended.Load() {
				panic("on purpose")
			}
			return json.RawMessage(`{"N":61}`), nil
		}),
	)
	b.Must(err)
	u.Bundle = b.Typed(types, around...)
	return u
}

// storedThen are events as earlier releases have appended them, by their streams. currentThen is what readers get of
// each of them, and nothing if its upcaster fails.
var storedThen = []struct{ stream, eventType, body string }{
	{"plain", "up-plain", `{"N":1}`},
	{"item", "up-item", `{"amount":"2"}`},
	{"order", "up-order", `{"a":3}`},
	{"both", "up-both", `{"N":4}`},
	{"bad", "up-bad", `{}`},
	{"worse", "up-worse", `{}`},
	{"bad", "up-plain", `{"N":7}`},
	{"item", "up-item.v2", `{"cents":8}`},
	{"order", "up-order.v2", `{"b":9}`},
	{"plain", "up_plain", `{"N":10}`},
	{"both", "up-both", `{"N":11}`},
	{"order", "up-order.v3", `{"c":12}`},
}

var currentThen = [][]string{
	{`up-plain 0 {"N":1}`},
	{`up-item.v2 0 {"cents":200}`},
	{`up-order.v3 0 {"c":40}`},
	{`up-left 1 {"L":4}`, `up-right 2 {"R":-4}`},
	nil,
	nil,
	{`up-plain 0 {"N":7}`},
	{`up-item.v2 0 {"cents":8}`},
	{`up-order.v3 0 {"c":90}`},
	{`up-plain 0 {"N":10}`},
	{`up-left 1 {"L":11}`, `up-right 2 {"R":-11}`},
	{`up-order.v3 0 {"c":12}`},
}

// mendedThen are the events at 4 and 5 after their upcasters are mended.
var mendedThen = map[int]string{4: `up-plain 0 {"N":51}`, 5: `up-plain 0 {"N":61}`}

// appendThen appends the stored events, as a release without a registry does.
func (u *upcasting) appendThen() *upcasting {
	for _, e := range storedThen {
		appended := u.plain.MustAppend(u.plain.Store, e.stream, event.Any,
			event.Untyped(e.eventType, json.RawMessage(e.body)))
		u.at = append(u.at, appended.Last())
	}
	return u
}

// want returns what a reader gets of the stored events with these indexes, of these types or of all, as lines.
func (u *upcasting) want(indexes []int, types ...string) (lines []string) {
	for _, i := range indexes {
		current := currentThen[i]
		if u.mended.Load() && mendedThen[i] != "" {
			current = []string{mendedThen[i]}
		}
		for _, line := range current {
			if name, _, _ := strings.Cut(line, " "); len(types) == 0 || slices.Contains(types, name) {
				lines = append(lines, fmt.Sprint(u.at[i], " ", line))
			}
		}
	}
	return lines
}

// allThen are the indexes of all stored events but some.
func allThen(but ...int) (indexes []int) {
	for i := range storedThen {
		if !slices.Contains(but, i) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// ofStream are the indexes of the events of a stream.
func ofStream(stream string) (indexes []int) {
	for i, e := range storedThen {
		if e.stream == stream {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// line shows an event without its position, and without the white space that PostgreSQL adds.
func line(e event.Envelope) string {
	var body bytes.Buffer
	if err := json.Compact(&body, e.Body); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %d %s", e.Type, e.Part, body.String())
}

// asLines are events whose streams show them, to be recorded.
func asLines(events []event.Envelope) []event.Envelope {
	shown := slices.Clone(events)
	for i, e := range shown {
		shown[i].Stream = line(e)
	}
	return shown
}

// recordLines records what a handler gets.
func recordLines(name string) kit.BatchFunc {
	return func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
		return tx.Record(ctx, name, asLines(events)...)
	}
}

// recorded returns what a projection has recorded by recordLines.
func (u *upcasting) recorded(name string) (lines []string) {
	u.T.Helper()
	applied, err := u.Store.Applied(u.Ctx, name)
	u.Must(err)
	for _, a := range applied {
		lines = append(lines, fmt.Sprint(a.Position, " ", a.Stream))
	}
	return lines
}

func mustEqual(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}
