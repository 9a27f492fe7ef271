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

// chainOf makes a Chain of functions.
func chainOf(t *testing.T, all ...func(next Call) Call) Chain {
	t.Helper()
	c, err := NewChain(len(all), func(i int, next Call) Call { return all[i](next) })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// noting notes its calls in l.
func noting(l *log, name string) func(next Call) Call {
	return func(next Call) Call {
		return func(ctx context.Context, events []event.Envelope) error {
			l.calls = append(l.calls, fmt.Sprintf("%s %d+%d", name, events[0].Position, len(events)))
			err := next(ctx, events)
			l.calls = append(l.calls, fmt.Sprintf("%s ends: %v", name, err))
			return err
		}
	}
}

func TestChainRunsAroundEachCallOfAHandler(t *testing.T) {
	each := Each(func(_ context.Context, l *log, e event.Envelope) error {
		l.calls = append(l.calls, fmt.Sprint(e.Position))
		return nil
	})
	for name, test := range map[string]struct {
		h     Handler
		types []string
		want  []string
	}{
		"each":  {each, []string{"a", "b"}, []string{"1+1", "1", "2+1", "2"}},
		"type":  {On(onOpened), []string{"opened", "opened"}, []string{"1+1", "1:10", "2+1", "2:20"}},
		"batch": {OnBatch(onClosed), []string{"closed", "closed"}, []string{"1+2", "2 closed"}},
		"route": {
			Route[*log](On(onOpened), OnBatch(onClosed)), []string{"closed", "closed", "opened"},
			[]string{"1+2", "2 closed", "3+1", "3:30"},
		},
	} {
		events := list(test.types...)
		l, noted := &log{}, &log{}
		if err := test.h.Within(chainOf(t, noting(noted, "outer"), noting(l, "inner"))).Apply(t.Context(), l,
			events); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var want []string
		for i := 0; i < len(test.want); i += 2 {
			want = append(want, "inner "+test.want[i], test.want[i+1], "inner ends: <nil>")
		}
		if !slices.Equal(l.calls, want) {
			t.Errorf("%s: inner calls %q, want %q", name, l.calls, want)
		}
		for i, call := range noted.calls {
			if !strings.HasPrefix(call, "outer") || i%2 == 0 && call != "outer "+test.want[i] {
				t.Errorf("%s: outer calls %q, want those of %q", name, noted.calls, test.want)
			}
		}
		plain := &log{}
		if err := test.h.Apply(t.Context(), plain, events); err != nil || len(plain.calls) != len(test.want)/2 {
			t.Errorf("%s without middleware: %q, %v", name, plain.calls, err)
		}
	}
}

func TestDeliveriesRunWithinAChain(t *testing.T) {
	l := &log{}
	d := &delivery{events: list("a", "b"), ends: time.Now().Add(time.Hour)}
	if err := DeliverEach(func(context.Context, event.Envelope, string) error { return nil }).Within(chainOf(t,
		noting(l, "each"))).Deliver(t.Context(), d); err != nil {
		t.Error(err)
	}
	if err := Deliver(func(context.Context, Delivery) error { return io.EOF }).Within(chainOf(t,
		noting(l, "all"))).Deliver(t.Context(), d); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	want := []string{"each 1+1", "each ends: <nil>", "each 2+1", "each ends: <nil>", "all 1+2", "all ends: EOF"}
	if !slices.Equal(l.calls, want) {
		t.Errorf("%q, want %q", l.calls, want)
	}
}

func TestErrorsPassAChain(t *testing.T) {
	wrapping := func(next Call) Call {
		return func(ctx context.Context, events []event.Envelope) error {
			if err := next(ctx, events); err != nil {
				return fmt.Errorf("traced: %w", err)
			}
			return nil
		}
	}
	panics := func(context.Context, *log, event.Envelope) error { panic(io.EOF) }
	fails := func(context.Context, *log, event.Envelope) error { return projection.Park(io.EOF) }
	for name, f := range map[string]func(context.Context, *log,
		event.Envelope) error{"panics": panics, "fails": fails} {
		var failed *projection.EventError
		err := Each(f).Within(chainOf(t, wrapping)).Apply(t.Context(), &log{}, list("a"))
		if !errors.As(err, &failed) || failed.Position != 1 || !errors.Is(err, io.EOF) ||
			err.Error() == failed.Err.Error() || !strings.Contains(err.Error(), "traced: ") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, asks := projection.RequestedAction(err); asks != (name == "fails") {
			t.Errorf("%s: requests an action: %v", name, asks)
		}
		if errors.Is(err, projection.ErrHandlerPanic) != (name == "panics") ||
			strings.Contains(failed.Stack, "chain_test.go") != (name == "panics") {
			t.Errorf("%s: %v, stack %q", name, err, failed.Stack)
		}
	}
	batch := Batch(func(context.Context, *log, []event.Envelope) error { return projection.At(2, io.EOF) })
	if err := batch.Within(chainOf(t, wrapping)).Apply(t.Context(), &log{},
		list("a", "b")); projection.FailedPosition(err) != 2 {
		t.Errorf("%v names no event", err)
	}
}

// Each misuse is an error, whatever the middleware returns. The function is called at most once.
func TestMisuseOfNextIsAnError(t *testing.T) {
	own := context.Background()
	for name, test := range map[string]struct {
		call func(ctx context.Context, events []event.Envelope, next Call) error
		want error
		ran  bool
	}{
		"not called": {
			func(context.Context, []event.Envelope, Call) error { return nil }, errNotCalled, false,
		},
		"not called, with an error": {
			func(context.Context, []event.Envelope, Call) error { return io.EOF }, io.EOF, false,
		},
		"twice": {func(ctx context.Context, events []event.Envelope, next Call) error {
			return errors.Join(next(ctx, events), next(ctx, events))
		}, errTwice, true},
		"twice, swallowed": {func(ctx context.Context, events []event.Envelope, next Call) error {
			_, _ = next(ctx, events), next(ctx, events)
			return projection.Skip(io.EOF)
		}, errTwice, true},
		"other events": {
			func(ctx context.Context, events []event.Envelope, next Call) error { return next(ctx, events[:1]) },
			errEvents, false,
		},
		"copied events": {func(ctx context.Context, events []event.Envelope, next Call) error {
			_ = next(ctx, slices.Clone(events))
			return nil
		}, errEvents, false},
		"another context": {
			func(_ context.Context, events []event.Envelope, next Call) error { return next(own, events) }, errContext,
			false,
		},
		"another context, swallowed": {func(_ context.Context, events []event.Envelope, next Call) error {
			_ = next(own, events)
			return nil
		}, errNotCalled, false},
	} {
		ran := 0
		h := Batch(func(context.Context, *log, []event.Envelope) error { ran++; return nil })
		c := chainOf(t, func(next Call) Call {
			return func(ctx context.Context, events []event.Envelope) error { return test.call(ctx, events, next) }
		})
		err := h.Within(c).Apply(t.Context(), &log{}, list("a", "b"))
		if _, asks := projection.RequestedAction(err); !errors.Is(err, test.want) || asks || (ran == 1) != test.ran ||
			ran > 1 || strings.Contains(err.Error(), "<nil>") {
			t.Errorf("%s: %v, the function ran %d times; want %v", name, err, ran, test.want)
		}
	}
}

// The function uses the transaction until it returns.
func TestChainWaitsForTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := false
		h := Batch(func(context.Context, *log, []event.Envelope) error {
			<-time.After(time.Hour)
			returned = true
			return nil
		})
		c := chainOf(t, func(next Call) Call {
			return func(ctx context.Context, events []event.Envelope) error {
				go func() { _ = next(ctx, events) }()
				<-time.After(time.Minute)
				return nil
			}
		})
		if err := h.Within(c).Apply(t.Context(), &log{}, list("a")); !errors.Is(err, errUnfinished) || !returned {
			t.Errorf("%v, returned %v", err, returned)
		}
	})
}

func TestPanicOfMiddlewareFailsTheEvent(t *testing.T) {
	h := Each(func(context.Context, *log, event.Envelope) error { return nil })
	c := chainOf(t,
		func(Call) Call { return func(context.Context, []event.Envelope) error { panic("in the middleware") } })
	err := h.Within(c).Apply(t.Context(), &log{}, list("a"))
	if projection.FailedPosition(err) != 1 || !errors.Is(err, projection.ErrHandlerPanic) ||
		!strings.Contains(usercode.StackOf(err), "chain_test.go") {
		t.Errorf("%v", err)
	}
}

func TestMiddlewareThatMakesNoCallIsRefused(t *testing.T) {
	for want, make := range map[string]func(i int, next Call) Call{
		"middleware 2 of 2: it returned a nil function": func(int, Call) Call { return nil },
		"middleware 2 of 2: the handler panicked: no":   func(int, Call) Call { panic("no") },
	} {
		if _, err := NewChain(2, make); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestHandlerWithoutMiddlewareAllocatesNothingForAnEvent(t *testing.T) {
	h := Each(func(context.Context, *log, event.Envelope) error { return nil })
	l, ctx := &log{}, t.Context()
	one, many := list("a"), list(make([]string, 100)...)
	allocs := func(events []event.Envelope) float64 {
		return testing.AllocsPerRun(100, func() { _ = h.Apply(ctx, l, events) })
	}
	if few, more := allocs(one), allocs(many); more > few {
		t.Errorf("%v allocations for one event, %v for 100", few, more)
	}
}
