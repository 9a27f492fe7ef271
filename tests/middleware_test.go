package tests_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// journal notes what happens, by projection.
type journal struct {
	mu    sync.Mutex
	lines map[string][]string
}

func newJournal() *journal { return &journal{lines: make(map[string][]string)} }

func (j *journal) note(ctx context.Context, format string, args ...any) {
	id, ok := millrace.ProjectionFrom(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	if !ok {
		id.Name = "no projection"
	}
	j.lines[id.Name] = append(j.lines[id.Name], fmt.Sprintf(format, args...))
}

func (j *journal) of(name string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines[name])
}

type seenBy struct{}

// named notes the positions of each call, and adds its name to the context.
func (j *journal) named(name string) millrace.Middleware {
	return func(next millrace.HandleFunc) millrace.HandleFunc {
		return func(ctx context.Context, events []event.Envelope) error {
			j.note(ctx, "%s %v", name, placesOf(events))
			outer, _ := ctx.Value(seenBy{}).(string)
			return next(context.WithValue(ctx, seenBy{}, outer+name), events)
		}
	}
}

func placesOf(events []event.Envelope) (positions []int64) {
	for _, e := range events {
		positions = append(positions, e.Position)
	}
	return positions
}

func TestMiddlewareRunsAroundEachCallInTheOrderGiven(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 2)
		j := newJournal()
		handled := func(ctx context.Context, positions ...int64) {
			j.note(ctx, "%s> %v", ctx.Value(seenBy{}), positions)
		}
		inner := []millrace.Middleware{j.named("inner ")}
		rt := b.Runtime(millrace.Config{Middleware: []millrace.Middleware{j.named("first "), j.named("second ")}},
			millrace.Projection{Name: "each", Middleware: inner,
				Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
					handled(ctx, e.Position)
					return tx.Record(ctx, "each", e)
				})},
			millrace.Projection{Name: "batch",
				Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
					handled(ctx, placesOf(events)...)
					return tx.Record(ctx, "batch", events...)
				})},
			millrace.Projection{Name: "delivered", Middleware: inner,
				Handler: millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
					handled(ctx, e.Position)
					return nil
				})},
			millrace.Projection{Name: "deliveries",
				Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
					handled(ctx, placesOf(d.Events())...)
					return d.Ack(ctx, 2)
				})})
		b.RunUntilIdle(rt)
		one := []string{
			"first  [1]", "second  [1]", "inner  [1]", "first second inner > [1]", "first  [2]", "second  [2]",
			"inner  [2]", "first second inner > [2]",
		}
		all := []string{"first  [1 2]", "second  [1 2]", "first second > [1 2]"}
		for name, want := range map[string][]string{"each": one, "delivered": one, "batch": all, "deliveries": all,
			"no projection": nil} {
			if got := j.of(name); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		b.Verify("each")
		b.Verify("batch")
	})
}

// Retries, narrowed batches and replays pass through the middleware, which sees each failure and panic. An error that
// it wraps keeps its event and its requested action.
func TestMiddlewareSeesFailuresRetriesAndReplays(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		s.PoisonAt(3)
		j := newJournal()
		sees := func(next millrace.HandleFunc) millrace.HandleFunc {
			return func(ctx context.Context, events []event.Envelope) error {
				err := next(ctx, events)
				j.note(ctx, "%v", err)
				if err != nil {
					return fmt.Errorf("seen: %w", err)
				}
				return nil
			}
		}
		batch, each := s.P, s.P
		batch.Name, batch.OnFailure, batch.Middleware = "p", projection.ActionPark, []millrace.Middleware{sees}
		each.Name, each.OnFailure, each.Middleware = "each", projection.ActionPark, []millrace.Middleware{sees}
		each.Handler = b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			if e.Position == 3 && !s.Mended.Load() {
				panic(kit.ErrOnPurpose)
			}
			return tx.Record(ctx, "each", e)
		})
		rt := b.Running(millrace.Config{}, batch, each)
		for name, text := range map[string]string{"p": "on purpose", "each": projection.ErrHandlerPanic.Error() +
			": on purpose"} {
			var letters []projection.DeadLetter
			b.Eventually("the poison event is parked",
				func() bool { letters = b.DeadLettersOf(name); return len(letters) == 1 })
			letter := letters[0]
			if letter.Position != 3 || letter.Attempts != 2 || !strings.Contains(letter.Error, "seen: "+text) ||
				strings.Contains(letter.Stack, "middleware_test.go") != (name == "each") {
				t.Errorf("%s: %+v", name, letter)
			}
			failures := slices.DeleteFunc(j.of(name), func(line string) bool { return line == "<nil>" })
			if len(failures) < 2 || slices.ContainsFunc(failures, func(line string) bool { return line != text }) {
				t.Errorf("%s: the middleware saw %q", name, failures)
			}
		}
		s.Mended.Store(true)
		for _, name := range []string{"p", "each"} {
			b.Reaches(rt, name, b.Head())
			before := len(j.of(name))
			if result := <-b.Replaying(name); result.Done != 1 {
				t.Errorf("%s: %+v", name, result)
			}
			if after := j.of(name); len(after) != before+1 || after[before] != "<nil>" {
				t.Errorf("%s: the replay was seen as %q", name, after[before:])
			}
		}
	})
}

// Middleware may skip or park an event. It cannot drop an event without an error.
func TestMiddlewareCannotLoseAnEventUnnoticed(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 3)
		for name, test := range map[string]struct {
			middleware func(ctx context.Context, next func() error) error
			failsAt2   func(ctx context.Context, tx kit.Tx) error
			parked     string
			skipped    bool
		}{
			"skips": {
				func(context.Context, func() error) error { return projection.Skip(kit.ErrOnPurpose) }, nil, "", true,
			},
			"forgets": {func(context.Context, func() error) error { return nil }, nil, "without calling next", false},
			"repeats": {
				func(_ context.Context, next func() error) error { _ = next(); return next() }, nil, "more than once",
				false,
			},
			"panics": {
				func(context.Context, func() error) error { panic("in the middleware") }, nil, "in the middleware",
				false,
			},
			"swallows": {
				func(_ context.Context, next func() error) error { _ = next(); return nil },
				func(context.Context, kit.Tx) error { return kit.ErrOnPurpose }, "", false,
			},
		} {
			around := func(next millrace.HandleFunc) millrace.HandleFunc {
				return func(ctx context.Context, events []event.Envelope) error {
					if events[0].Position != 2 {
						return next(ctx, events)
					}
					return test.middleware(ctx, func() error { return next(ctx, events) })
				}
			}
			b.Idle(millrace.Projection{Name: name, OnFailure: projection.ActionPark, Retry: kit.Soon(0),
				Middleware: []millrace.Middleware{around},
				Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
					if err := tx.Record(ctx, name, e); err != nil || e.Position != 2 || test.failsAt2 == nil {
						return err
					}
					return test.failsAt2(ctx, tx)
				})})
			letters := b.DeadLettersOf(name)
			switch {
			case test.parked != "":
				if len(letters) != 1 || letters[0].Position != 2 || !strings.Contains(letters[0].Error, test.parked) {
					t.Errorf("%s: %+v", name, letters)
				}
				b.Verify(name, 2)
			case len(letters) > 0:
				t.Errorf("%s: %+v", name, letters)
			case test.skipped:
				b.Verify(name, 2)
			default:
				b.Verify(name)
			}
		}
	})
}
