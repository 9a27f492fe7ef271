package tests_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/tests/kit"
)

// An append of a type that is not registered is refused in each way to append, and writes nothing: no event, and no
// key. Old types are appended, as while a release is rolled out.
func TestAppendsOfOtherTypesAreRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		misspells := func(next event.AppendFunc) event.AppendFunc {
			return func(ctx context.Context, a event.Appending) (event.Appended, error) {
				if a.Stream == "through middleware" {
					a.Events = []event.Event{event.Untyped("up-itm", 1)}
				}
				return next(ctx, a)
			}
		}
		u := newUpcasting(b, misspells)
		wrong, right := []event.Event{event.New(upPlain{}), event.Untyped("up-itm", 1)},
			[]event.Event{event.New(upItem1{}), event.New(upItem{})}
		refused := func(how string, err error) {
			t.Helper()
			if !errors.Is(err, eventtype.ErrNotRegistered) ||
				!strings.Contains(err.Error(), `event type "up-itm" is not registered`) {
				t.Errorf("%s: error %v", how, err)
			}
		}
		_, err := u.Store.Append(u.Ctx, "s", event.NoStream.WithKey("k"), wrong...)
		refused("append", err)
		_, err = u.Store.Append(u.Ctx, "through middleware", event.Any, right...)
		refused("middleware", err)
		u.Must(u.Store.InTx(u.Ctx, func(ctx context.Context, tx kit.Tx) error {
			_, err := u.Store.AppendTx(ctx, tx, "s", event.Any, wrong...)
			refused("in a transaction", err)
			return nil
		}))
		if all := u.All(u.Store); len(all) > 0 {
			t.Errorf("appended %+v", all)
		}
		u.MustAppend(u.Store, "s", event.NoStream.WithKey("k"), right...)
		_, err = u.plain.Store.Append(u.Ctx, "s", event.Any, wrong...)
		if err != nil {
			t.Errorf("without a registry: %v", err)
		}
		u.MustAppend(u.Store, "left", event.Any, event.New(upLeft{}))
		appends := u.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			_, err := u.Store.AppendTx(ctx, tx, "h", event.Any, wrong...)
			refused("in a handler", err)
			return err
		})
		u.Idle(millrace.Projection{Name: "appends", Types: []string{"up-left"}, Handler: appends, Retry: kit.Soon(0)})
		if letters := u.DeadLettersOf("appends"); len(letters) != 1 ||
			!strings.Contains(letters[0].Error, `"up-itm" is not registered`) {
			t.Errorf("parked %+v", letters)
		}
	})
}

// oldForms are the events that the current release and earlier releases append for the same fact.
var oldForms = []func(n int) (current []event.Event, old []event.Event){
	func(n int) (_, _ []event.Event) {
		return []event.Event{event.New(upPlain{n})},
			[]event.Event{event.New(upPlain{n}), event.Untyped("up_plain", upPlain{n})}
	},
	func(n int) (_, _ []event.Event) {
		return []event.Event{event.New(upItem{100 * n})},
			[]event.Event{event.New(upItem{100 * n}), event.New(upItem1{fmt.Sprint(n)})}
	},
	func(n int) (_, _ []event.Event) {
		current := event.New(upOrder{10 * (n + 1)})
		return []event.Event{current}, []event.Event{current, event.New(upOrder1{n}), event.New(upOrder2{n + 1})}
	},
	func(n int) (_, _ []event.Event) {
		return []event.Event{event.New(upLeft{n}), event.New(upRight{-n})}, []event.Event{event.New(upBoth{n})}
	},
}

// Whatever forms the facts have, a reader of current events sees the same events as if all were appended in their
// current form, and so does a handler, with each selection.
func TestFormsOfEventsDoNotShowProperty(t *testing.T) {
	selections := [][]string{nil, {"up-plain"}, {"up-item.v2", "up-right"}, {"up-order.v3", "up-left"}}
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		u, begin, n := newUpcasting(b), time.Now(), 0
		rapid.Check(t, func(t *rapid.T) {
			if time.Since(begin) > 5*time.Second {
				return
			}
			n++
			selected := rapid.SampledFrom(selections).Draw(t, "selected")
			facts := rapid.SliceOfN(rapid.IntRange(0, len(oldForms)-1), 1, 12).Draw(t, "facts")
			forms := rapid.SliceOfN(rapid.IntRange(0, 5), len(facts), len(facts)).Draw(t, "forms")
			streams := rapid.SliceOfN(rapid.IntRange(0, 2), len(facts), len(facts)).Draw(t, "streams")
			var shown [2][]string
			for side := range shown {
				tenant, err := u.Store.CreateTenant(u.Ctx, fmt.Sprintf("t%d-%d", n, side))
				u.Must(err)
				for i, fact := range facts {
					appended, old := oldForms[fact](i)
					if side == 1 {
						appended = old[forms[i]%len(old) : forms[i]%len(old)+1]
					}
					u.MustAppend(tenant, fmt.Sprint("s", streams[i]), event.Any, appended...)
				}
				for _, e := range u.Collect(tenant.ReadAll(u.Ctx, event.ReadOptions{Types: selected})) {
					shown[side] = append(shown[side], shownFact(e))
				}
				shown[side] = append(shown[side], "handled:")
				handler := u.Store.Batch(func(_ context.Context, _ kit.Tx, events []event.Envelope) error {
					for _, e := range events {
						shown[side] = append(shown[side], shownFact(e))
					}
					return nil
				})
				u.Idle(millrace.Projection{
					Name: "p", Tenants: []string{tenant.Name()}, Types: selected, Handler: handler,
				})
				for s := range 3 {
					for _, e := range u.Collect(tenant.ReadStream(u.Ctx, fmt.Sprint("s", s), 1)) {
						shown[side] = append(shown[side], shownFact(e))
					}
				}
			}
			if got, want := strings.Join(shown[1], "\n"), strings.Join(shown[0], "\n"); got != want {
				t.Fatalf("old forms are shown as\n%s\nand current ones as\n%s", got, want)
			}
		})
	})
}

// shownFact shows an event without its place.
func shownFact(e event.Envelope) string { e.Part = 0; return e.Stream + " " + line(e) }
