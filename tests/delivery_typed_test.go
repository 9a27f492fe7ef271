package tests_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// delivers is a function for DeliverOn that records what arrives.
func delivers[T event.Typed](b *kit.Bundle, fails func(e event.Envelope) error) func(context.Context,
	millrace.DeliveredOf[T]) error {
	return func(ctx context.Context, e millrace.DeliveredOf[T]) error {
		if err := fails(e.Envelope); err != nil {
			return err
		}
		return b.Store.Arrive(ctx, kit.Arrival{Position: e.Position, Token: fmt.Sprintf("%T %s", e.Body, e.Token)})
	}
}

// Deliveries of several types are routed by type, one by one, decoded and in order. An event that fails is parked
// alone, and a replay finds its function again.
func TestDeliveriesAreRoutedByType(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		all := []event.Event{
			event.New(kit.Counted{I: 1}), event.New(kit.Counted{I: 2}), event.New(kit.Noted{I: 3}),
			event.Untyped("other", nil), event.New(kit.Counted{I: 5}),
		}
		_, err := b.Store.Append(b.Ctx, "s", event.Any, all...)
		b.Must(err)
		bad := true
		fails := func(e event.Envelope) error {
			if e.Position == 3 && bad {
				return projection.Park(kit.ErrOnPurpose)
			}
			return nil
		}
		var calls [][]int64
		p := millrace.Projection{Name: "p", AnyOrder: true,
			Handler: millrace.DeliverRoute(millrace.DeliverOn(delivers[kit.Counted](b, fails)),
				millrace.DeliverOn(delivers[kit.Noted](b, fails))),
			Middleware: []millrace.Middleware{func(next millrace.HandleFunc) millrace.HandleFunc {
				return func(ctx context.Context, events []event.Envelope) error {
					calls = append(calls, placesOf(events))
					return next(ctx, events)
				}
			}}}
		arrived := func(want ...string) {
			t.Helper()
			list, err := b.Store.Arrived(b.Ctx)
			b.Must(err)
			got := make([]string, len(list))
			for i, a := range list {
				of, token, _ := strings.Cut(a.Token, " ")
				got[i] = fmt.Sprint(of, " ", a.Position)
				if !strings.Contains(token, fmt.Sprintf("/%d/", a.Position)) {
					t.Errorf("event %d has token %s", a.Position, token)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("arrived %q, want %q", got, want)
			}
		}
		b.Idle(p)
		arrived("kit.Counted 1", "kit.Counted 2", "kit.Counted 5")
		b.MustPark("p", 3, 1)
		if want := [][]int64{{1}, {2}, {3}, {5}}; !slices.EqualFunc(calls, want, slices.Equal) {
			t.Errorf("the middleware was called with %v, want %v", calls, want)
		}
		bad = false
		rt := b.Running(millrace.Config{}, p)
		b.Reaches(rt, "p", 5)
		if result := <-b.Replaying("p"); result.Done != 1 {
			t.Errorf("replay: %+v", result)
		}
		arrived("kit.Counted 1", "kit.Counted 2", "kit.Counted 5", "kit.Noted 3")
	})
}

// A strict delivery sends nothing for an event of another shape.
func TestStrictDeliveriesParkEventsOfAnotherShape(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 1)
		for _, body := range []string{`{"n": 2}`, `{}`} {
			_, err := b.Store.Append(b.Ctx, "s", event.Any, event.Event{Type: "counted", Body: []byte(body)})
			b.Must(err)
		}
		on := millrace.DeliverOn(delivers[renamed](b, func(event.Envelope) error { return nil }), event.Strict)
		for name, h := range map[string]millrace.Handler{"on": on, "route": millrace.DeliverRoute(on)} {
			b.Idle(millrace.Projection{Name: name, AnyOrder: true, Handler: h})
			letters := b.DeadLettersOf(name)
			if len(letters) != 2 || letters[0].Position != 1 || letters[1].Position != 3 || letters[0].Attempts != 1 ||
				!strings.Contains(letters[0].Error, "at i: the type has no such field") ||
				!strings.Contains(letters[1].Error, "at n: the body has no such member") {
				t.Errorf("%s: %+v", name, letters)
			}
		}
		list, err := b.Store.Arrived(b.Ctx)
		b.Must(err)
		if len(list) != 2 || list[0].Position != 2 || list[1].Position != 2 {
			t.Errorf("arrived %+v", list)
		}
	})
}

func TestRouteOfDeliveriesIsRefusedByItsReason(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		on := millrace.DeliverOn(func(context.Context, millrace.DeliveredOf[kit.Counted]) error { return nil })
		inTx := kit.Typed[kit.Noted]{Store: b.Store}.On(func(context.Context, kit.Tx, event.Of[kit.Noted]) error {
			return nil
		})
		for want, p := range map[string]millrace.Projection{
			"DeliverRoute has no handlers":          {Handler: millrace.DeliverRoute()},
			"handler 2 of DeliverRoute is nil":      {Handler: millrace.DeliverRoute(on, nil)},
			`event type "counted" is handled twice`: {Handler: millrace.DeliverRoute(on, on)},
			"handler 1 of DeliverRoute has no event type": {
				Handler: millrace.DeliverRoute(millrace.DeliverEach(kit.Freely)),
			},
			"handler 2 of DeliverRoute does not deliver": {Handler: millrace.DeliverRoute(on, inTx)},
			"the function of DeliverOn is nil":           {Handler: millrace.DeliverOn[kit.Counted](nil)},
			"Projection.Types must be empty":             {Handler: on, Types: []string{"counted"}},
			"Projection.AsyncCommit must be false":       {Handler: millrace.DeliverRoute(on), AsyncCommit: true},
		} {
			rt, err := millrace.New(millrace.Config{Store: b.Store})
			b.Must(err)
			p.Name = "p"
			if err := rt.Register(p); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	})
}
