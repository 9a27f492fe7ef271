package tests_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// appending are projections of each shape in the tenant acme. Each appends an event to the stream of its name for each
// event of type counted.
func appending(b *kit.Bundle, acme kit.Tenant) []millrace.Projection {
	typed := kit.Typed[kit.Counted]{Store: b.Store}
	noted := func() event.Event { return event.New(kit.Noted{}) }
	within := func(name string) kit.EventFunc {
		return func(ctx context.Context, tx kit.Tx, _ event.Envelope) error {
			_, err := acme.AppendTx(ctx, tx, name, event.Any, noted())
			return err
		}
	}
	outside := func(name string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := acme.Append(projection.OutsideTx(ctx), name, event.Any, noted())
			return err
		}
	}
	on := func(name string) func(context.Context, kit.Tx, event.Of[kit.Counted]) error {
		return func(ctx context.Context, tx kit.Tx, e event.Of[kit.Counted]) error {
			return within(name)(ctx, tx, e.Envelope)
		}
	}
	delivers := func(name string) millrace.Handler {
		return millrace.DeliverOn(func(ctx context.Context, _ millrace.DeliveredOf[kit.Counted]) error {
			return outside(name)(ctx)
		})
	}
	handlers := map[string]millrace.Handler{
		"each": b.Store.Each(within("each")),
		"on":   typed.On(on("on")), "route": kit.Route(typed.On(on("route"))),
		"queued each": b.Store.QueuedEach(func(ctx context.Context, _ kit.Queue, _ event.Envelope) error {
			return outside("queued each")(ctx)
		}),
		"on queued": typed.OnQueued(func(ctx context.Context, _ kit.Queue, _ event.Of[kit.Counted]) error {
			return outside("on queued")(ctx)
		}),
		"deliver each": millrace.DeliverEach(func(ctx context.Context, _ millrace.Delivered) error {
			return outside("deliver each")(ctx)
		}),
		"deliver on": delivers("deliver on"), "deliver route": millrace.DeliverRoute(delivers("deliver route")),
		"batch": b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			for _, e := range events {
				if err := within("batch")(event.CausedBy(ctx, acme.Name(), e), tx, e); err != nil {
					return err
				}
			}
			return nil
		}),
		"deliver": millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
			for _, e := range d.Events() {
				if err := outside("deliver")(event.CausedBy(ctx, acme.Name(), e)); err != nil {
					return err
				}
				if err := d.Ack(ctx, e.Position); err != nil {
					return err
				}
			}
			return nil
		}),
		"failure": b.Store.Each(func(context.Context, kit.Tx, event.Envelope) error { return kit.ErrOnPurpose }),
	}
	var list []millrace.Projection
	for name, h := range handlers {
		p := millrace.Projection{Name: name, Handler: h}
		if len(h.Engine().Types) == 0 {
			p.Types = []string{"counted"}
		}
		if name == "failure" {
			p.FailureHandler = func(ctx context.Context, _ projection.Failure) projection.Action {
				if err := outside(name)(ctx); err != nil {
					return projection.ActionStop
				}
				return projection.ActionSkip
			}
		}
		list = append(list, p)
	}
	return list
}

// ids are the ids of causation and correlation of events.
func ids(events []event.Envelope) (list []string) {
	for _, e := range events {
		list = append(list, e.CausationID+" "+e.CorrelationID)
	}
	return list
}

func idsOf(b *kit.Bundle, tenant kit.Tenant, stream string) []string {
	b.T.Helper()
	return ids(b.Collect(tenant.ReadStream(b.Ctx, stream, 1)))
}

// The second event has a conversation already, and the first begins one.
func TestEventsOfAHandlerNameTheirCause(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		acme, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		b.MustAppend(acme, "in", event.Any, event.New(kit.Counted{}),
			event.Event{Type: "counted", Body: []byte(`{"i": 1}`), CorrelationID: "talk"})
		projections := appending(b, acme)
		b.Idle(projections...)
		for _, p := range projections {
			if got, want := idsOf(b, acme, p.Name), []string{"acme/1 acme/1", "acme/2 talk"}; !slices.Equal(got, want) {
				t.Errorf("%s appended %q, want %q", p.Name, got, want)
			}
		}
		if got := idsOf(b, acme, "in"); !slices.Equal(got, []string{" ", " talk"}) {
			t.Errorf("without a cause: %q", got)
		}
	})
}

// A handler of a batch may get one event or several. What it appends must not depend on that.
func TestHandlerOfABatchNamesNoCauseByItself(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("in", 1)
		b.Idle(millrace.Projection{Name: "p", Types: []string{"counted"}, Handler: b.Store.Batch(
			func(ctx context.Context, tx kit.Tx, _ []event.Envelope) error {
				_, err := b.Store.AppendTx(ctx, tx, "out", event.Any, event.New(kit.Noted{}))
				return err
			})})
		if got := idsOf(b, b.Store, "out"); !slices.Equal(got, []string{" "}) {
			t.Errorf("appended %q", got)
		}
	})
}

// The event is tried, parked and replayed. Each time the batch has others with it.
func TestCauseIsTheSameEachTime(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		for _, stream := range []string{"a", "b", "c"} {
			b.Append(stream, 1)
		}
		var mended atomic.Bool
		p := millrace.Projection{Name: "p", Types: []string{"counted"}, Retry: kit.Soon(2),
			MaxFailureShare: projection.NoLimit, Handler: b.Store.Each(
				func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
					_, err := b.Store.AppendTx(ctx, tx, "out", event.Any, event.New(kit.Noted{}))
					if err == nil && e.Position == 2 && !mended.Load() {
						err = kit.ErrOnPurpose
					}
					return err
				})}
		b.Idle(p)
		if letters := b.DeadLettersOf("p"); len(letters) != 1 || letters[0].Position != 2 {
			t.Fatalf("parked %+v", letters)
		}
		mended.Store(true)
		b.Running(millrace.Config{}, p)
		if result := <-b.Replaying("p"); result.Done != 1 {
			t.Fatalf("%+v", result)
		}
		got := idsOf(b, b.Store, "out")
		slices.Sort(got)
		if want := []string{"default/1 default/1", "default/2 default/2", "default/3 default/3"}; !slices.Equal(got,
			want) {
			t.Errorf("appended %q, want %q", got, want)
		}
	})
}

func TestIDsOfAnEventAreKept(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		cause := event.Envelope{Position: 7, CorrelationID: "talk"}
		caused := event.CausedBy(b.Ctx, "acme", cause)
		bare := event.New(kit.Noted{})
		given := []event.Event{
			bare, {Type: "noted", CausationID: "mine"}, {Type: "noted", CorrelationID: "mine"},
			{Type: "noted", CausationID: "a", CorrelationID: "b"},
		}
		for stream, test := range map[string]struct {
			ctx  context.Context
			want []string
		}{
			"no cause":                {b.Ctx, []string{" ", "mine ", " mine", "a b"}},
			"an event":                {caused, []string{"acme/7 talk", "mine talk", "acme/7 mine", "a b"}},
			"a request":               {event.WithCorrelation(b.Ctx, "r"), []string{" r", "mine r", " mine", "a b"}},
			"a request without an id": {event.WithCorrelation(b.Ctx, ""), []string{" ", "mine ", " mine", "a b"}},
			"another conversation": {
				event.WithCorrelation(caused, "r"), []string{"acme/7 r", "mine r", "acme/7 mine", "a b"},
			},
			"an event after a request": {
				event.CausedBy(event.WithCorrelation(b.Ctx, "r"), "acme", cause),
				[]string{"acme/7 talk", "mine talk", "acme/7 mine", "a b"},
			},
			"an event that is nowhere": {
				event.CausedBy(b.Ctx, "acme", event.Envelope{}), []string{" ", "mine ", " mine", "a b"},
			},
		} {
			mine := slices.Clone(given)
			_, err := b.Store.Append(test.ctx, stream, event.NoStream, mine...)
			b.Must(err)
			if got := idsOf(b, b.Store, stream); !slices.Equal(got, test.want) {
				t.Errorf("%s: %q, want %q", stream, got, test.want)
			}
			if fmt.Sprint(ids(asStored(mine))) != fmt.Sprint(ids(asStored(given))) {
				t.Errorf("%s: the caller's events were changed", stream)
			}
		}
	})
}

// asStored returns envelopes with the ids of events.
func asStored(events []event.Event) (list []event.Envelope) {
	for _, e := range events {
		list = append(list, event.Envelope{CausationID: e.CausationID, CorrelationID: e.CorrelationID})
	}
	return list
}

// The ids of a redacted event are removed, and so its copy must not get others.
func TestCopyOfARedactedEventGetsNoIDs(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "ada", event.Any, event.Event{Type: "counted", CausationID: "c", CorrelationID: "r"},
			event.Event{Type: "counted"})
		_, err := b.Store.RedactEvents(b.Ctx, []int64{1}, "a request")
		b.Must(err)
		for _, e := range b.All(b.Store) {
			_, err := b.Store.Append(event.CausedBy(b.Ctx, "acme", event.Envelope{Position: 7}), "copy", event.Any,
				e.Event())
			b.Must(err)
		}
		if got, want := idsOf(b, b.Store, "copy"), []string{" ", "acme/7 acme/7"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestAppendMiddlewareSeesAndChangesTheCause(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var saw []string
		store := b.Around(func(next event.AppendFunc) event.AppendFunc {
			return func(ctx context.Context, a event.Appending) (event.Appended, error) {
				saw = append(saw, ids(asStored(a.Events))...)
				a.Events = slices.Clone(a.Events)
				a.Events[0].CorrelationID = "changed"
				a.Events[1].CorrelationID = ""
				return next(ctx, a)
			}
		})
		ctx := event.CausedBy(b.Ctx, "acme", event.Envelope{Position: 7})
		two := []event.Event{event.New(kit.Noted{}), event.New(kit.Noted{})}
		_, err := store.Append(ctx, "pool", event.Any, two...)
		b.Must(err)
		b.Must(store.InTx(ctx, func(ctx context.Context, tx kit.Tx) error {
			_, err := store.AppendTx(ctx, tx, "tx", event.Any, two...)
			return err
		}))
		for _, stream := range []string{"pool", "tx"} {
			if got, want := idsOf(b, b.Store, stream), []string{"acme/7 changed", "acme/7 "}; !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", stream, got, want)
			}
		}
		if want := slices.Repeat([]string{"acme/7 acme/7"}, 4); !slices.Equal(saw, want) {
			t.Errorf("the middleware saw %q, want %q", saw, want)
		}
	})
}

// Middleware of a projection runs with the cause, too: what it appends follows from the event.
func TestMiddlewareOfAProjectionHasTheCause(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("in", 2)
		audits := func(next millrace.HandleFunc) millrace.HandleFunc {
			return func(ctx context.Context, events []event.Envelope) error {
				id, _ := millrace.ProjectionFrom(ctx)
				if _, err := b.Store.Append(projection.OutsideTx(ctx), id.Name, event.Any,
					event.New(kit.Noted{})); err != nil {
					return err
				}
				return next(ctx, events)
			}
		}
		handlers := map[string]millrace.Handler{
			"queued": b.Store.QueuedEach(func(context.Context, kit.Queue, event.Envelope) error { return nil }),
			"route": millrace.DeliverRoute(millrace.DeliverOn(
				func(context.Context, millrace.DeliveredOf[kit.Counted]) error { return nil })),
		}
		for _, name := range slices.Sorted(maps.Keys(handlers)) {
			p := millrace.Projection{Name: name, Handler: handlers[name], Middleware: []millrace.Middleware{audits}}
			if name == "queued" {
				p.Types = []string{"counted"}
			}
			b.Idle(p)
			if got, want := idsOf(b, b.Store, name),
				[]string{"default/1 default/1", "default/2 default/2"}; !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	})
}
