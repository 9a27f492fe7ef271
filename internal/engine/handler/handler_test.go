package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
)

// log is the transaction of handlers in these tests. It has what they were given.
type log struct{ calls []string }

type opened struct{ N int }

func (opened) EventType() string { return "opened" }

type closed struct{}

func (closed) EventType() string { return "closed" }

// pointed has an event type that its zero value cannot name.
type pointed struct{ name *string }

func (p pointed) EventType() string { return *p.name }

func onOpened(_ context.Context, l *log, e event.Of[opened]) error {
	l.calls = append(l.calls, fmt.Sprintf("%d:%d", e.Position, e.Body.N))
	return nil
}

func onClosed(_ context.Context, l *log, es []event.Of[closed]) error {
	l.calls = append(l.calls, fmt.Sprintf("%d closed", len(es)))
	return nil
}

func list(types ...string) (all []event.Envelope) {
	for i, t := range types {
		all = append(all, event.Envelope{Position: int64(i + 1),
			Type: t, Body: fmt.Appendf(nil, `{"N": %d}`, 10*(i+1))})
	}
	return all
}

func TestRouteCallsTheHandlerOfEachRunOfOneType(t *testing.T) {
	h := Route[*log](On(onOpened), OnBatch(onClosed))
	if h.Err != nil || !slices.Equal(h.Types, []string{"closed", "opened"}) {
		t.Fatal(h.Err, h.Types)
	}
	var l log
	if err := h.Apply(t.Context(), &l, list("closed", "closed", "opened", "closed", "opened")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"2 closed", "3:30", "1 closed", "5:50"}; !slices.Equal(l.calls, want) {
		t.Errorf("%q, want %q", l.calls, want)
	}
	failing := Route[*log](OnBatch(func(context.Context, *log, []event.Of[opened]) error { return io.EOF }),
		OnBatch(onClosed))
	if err := failing.Apply(t.Context(), &l, list("opened", "closed")); err != io.EOF || len(l.calls) != 4 {
		t.Errorf("%v, then %q", err, l.calls[4:])
	}
}

func TestOnlyHandlersOfBatchesTakeBatches(t *testing.T) {
	one := func(context.Context, *log, event.Envelope) error { return nil }
	batch := func(context.Context, *log, []event.Envelope) error { return nil }
	around := Chain(endOfChain)
	for name, test := range map[string]struct {
		h    Handler
		want bool
	}{
		"Batch":                       {Batch(batch), true},
		"Batch within middleware":     {Batch(batch).Within(around), true},
		"Each":                        {Each(one), false},
		"On":                          {On(onOpened), false},
		"OnBatch":                     {OnBatch(onClosed), true},
		"Route of batches":            {Route[*log](OnBatch(onClosed)), true},
		"Route of batches and events": {Route[*log](OnBatch(onClosed), On(onOpened)), false},
		"Deliver":                     {Deliver(func(context.Context, Delivery) error { return nil }), false},
	} {
		if test.h.Err != nil || test.h.Batches != test.want {
			t.Errorf("%s: takes batches: %v, %v", name, test.h.Batches, test.h.Err)
		}
	}
}

// A dead letter may be of a type that the projection handled in an earlier version of the program.
func TestRouteNamesTheTypeThatItDoesNotHandle(t *testing.T) {
	l := &log{}
	route := Route[*log](On(onOpened), OnBatch(onClosed))
	err := usercode.Protect(func() error { return route.Apply(t.Context(), l, list("opened", "renamed")) })
	if err == nil || errors.Is(err, projection.ErrHandlerPanic) || projection.FailedPosition(err) != 2 ||
		!strings.Contains(err.Error(), `"renamed"`) {
		t.Errorf("error %v", err)
	}
}

func TestErrorOfAHandlerNamesTheEvent(t *testing.T) {
	var failed *projection.EventError
	each := Each(func(_ context.Context, _ *log, e event.Envelope) error {
		if e.Type == "panics" {
			panic("boom")
		}
		return map[string]error{"fails": io.EOF}[e.Type]
	})
	if err := each.Apply(t.Context(), &log{}, list("fine", "fails")); !errors.As(err, &failed) ||
		failed.Position != 2 || !errors.Is(failed.Err, io.EOF) || failed.Stack != "" {
		t.Errorf("%#v", err)
	}
	if err := each.Apply(t.Context(), &log{}, list("panics")); !errors.As(err, &failed) || failed.Position != 1 ||
		failed.Stack == "" || !errors.Is(err, projection.ErrHandlerPanic) {
		t.Errorf("%#v", err)
	}
	if err := each.Apply(t.Context(), &log{}, list("fine")); err != nil {
		t.Error(err)
	}
	bad := list("opened", "opened")
	bad[1].Body = []byte(`{"N": "x"}`)
	var decode *event.DecodeError
	batch := OnBatch(func(context.Context, *log, []event.Of[opened]) error { return nil })
	for name, h := range map[string]Handler{"one by one": On(onOpened), "a batch": batch} {
		if err := h.Apply(t.Context(), &log{}, bad); projection.FailedPosition(err) != 2 || !errors.As(err, &decode) {
			t.Errorf("%s: %v", name, err)
		}
		if err := h.Apply(t.Context(), &log{}, bad[:1]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInvalidHandlerHasItsReason(t *testing.T) {
	const none = "the handler's function is nil"
	for want, handlers := range map[string][]Handler{
		none: {Batch[*log](nil), Each[*log](nil), On[*log, opened](nil),
			OnBatch[*log, opened](nil),
			Route[*log](Each[*log](nil), Each[*log](nil))},
		"Route has no handlers": {Route[*log]()},
		"handler 2 of Route has no event type": {
			Route[*log](On(onOpened),
				Each(func(context.Context, *log, event.Envelope) error { return nil })),
		},
		`event type "opened" is handled twice`: {
			Route[*log](On(onOpened), On(onOpened), Each[*log](nil)),
		},
		"find the event type of handler.pointed by its zero value": {
			On(func(context.Context, *log, event.Of[pointed]) error { return nil }),
		},
	} {
		for i, h := range handlers {
			if h.Err == nil || !strings.HasPrefix(h.Err.Error(), want) {
				t.Errorf("%d: %v, want %q", i, h.Err, want)
			}
		}
	}
	if h := On(onOpened); h.Err != nil || !slices.Equal(h.Types, []string{"opened"}) {
		t.Error(h.Err, h.Types)
	}
}

// delivery is a Delivery with a time budget.
type delivery struct {
	events []event.Envelope
	ends   time.Time
	acked  []int64
	refuse error
}

func (d *delivery) Events() []event.Envelope                   { return d.events }
func (d *delivery) Token(e event.Envelope) string              { return fmt.Sprint("token ", e.Position) }
func (d *delivery) Remaining() time.Duration                   { return time.Until(d.ends) }
func (d *delivery) Reject(context.Context, int64, error) error { return nil }
func (d *delivery) Ack(_ context.Context, position int64) error {
	d.acked = append(d.acked, position)
	return d.refuse
}

func TestDeliveryOfEachStopsBeforeAnEventCouldBeInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := map[string]time.Duration{"slow": 10 * time.Second, "fast": time.Second}
		h := DeliverEach(func(ctx context.Context, e event.Envelope, token string) error {
			if token != fmt.Sprint("token ", e.Position) {
				t.Error(token)
			}
			<-time.After(took[e.Type])
			return map[string]error{"fails": io.EOF}[e.Type]
		})
		for _, test := range []struct {
			types  []string
			budget time.Duration
			refuse error
			acked  int
			err    error
		}{
			{[]string{"fast", "fast", "fast", "fast"}, time.Minute, nil, 4, nil},
			{[]string{"slow", "fast", "fast", "fast"}, 31 * time.Second, nil, 2, nil},
			{[]string{"slow", "fast", "fast", "fast"}, 30 * time.Second, nil, 1, nil},
			{[]string{"slow", "fast"}, time.Second, nil, 1, nil},
			{[]string{"fast"}, 0, nil, 1, nil},
			{[]string{"fast", "fails", "fast"}, time.Minute, nil, 1, io.EOF},
			{[]string{"fast", "fast"}, time.Minute, io.ErrUnexpectedEOF, 1, io.ErrUnexpectedEOF},
		} {
			d := &delivery{events: list(test.types...), ends: time.Now().Add(test.budget), refuse: test.refuse}
			if err := h.Deliver(t.Context(), d); err != test.err || len(d.acked) != test.acked {
				t.Errorf("%+v: %v after %v", test, err, d.acked)
			}
		}
	})
}

// The limit counts the events of all types together.
func TestRoutedDeliveryStopsBeforeAnEventCouldBeInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := DeliverType(func(context.Context, event.Of[opened], string) error {
			<-time.After(10 * time.Second)
			return nil
		})
		fast := DeliverType(func(context.Context, event.Of[closed], string) error { return nil })
		h := DeliverRoute(slow, fast)
		if h.Err != nil || !slices.Equal(h.Types, []string{"closed", "opened"}) || h.Batches || h.Apply != nil ||
			h.Queue != nil {
			t.Fatal(h.Err, h.Types)
		}
		for budget, want := range map[time.Duration][]int64{time.Minute: {1, 2, 3}, 30 * time.Second: {1}} {
			d := &delivery{events: list("opened", "closed", "opened"), ends: time.Now().Add(budget)}
			if err := h.Deliver(t.Context(), d); err != nil || !slices.Equal(d.acked, want) {
				t.Errorf("%v: acknowledged %v, want %v; %v", budget, d.acked, want, err)
			}
		}
		d := &delivery{events: list("closed", "renamed"), ends: time.Now().Add(time.Minute)}
		if err := h.Deliver(t.Context(), d); err == nil || !strings.Contains(err.Error(), `"renamed"`) ||
			len(d.acked) != 1 {
			t.Errorf("after %v: %v", d.acked, err)
		}
	})
}

func TestContextNamesTheProjection(t *testing.T) {
	id := projection.ID{Tenant: "t", Name: "p"}
	if got, named := ProjectionFrom(WithProjection(t.Context(), id)); !named || got != id {
		t.Error(got, named)
	}
	if _, named := ProjectionFrom(t.Context()); named {
		t.Error("a context without a projection names one")
	}
}
