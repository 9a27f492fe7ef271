package tests_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// adds returns a middleware that adds a header, and records what it saw in calls.
func adds(calls *[]string, name string) event.AppendMiddleware {
	return func(next event.AppendFunc) event.AppendFunc {
		return func(ctx context.Context, a event.Appending) (event.Appended, error) {
			result, err := next(ctx, a.WithHeaders(map[string]string{name: "added", "both": name}))
			*calls = append(*calls, name+" "+a.Tenant+" "+a.Stream)
			return result, err
		}
	}
}

func TestAppendMiddlewareAddsHeadersToEachEvent(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var calls []string
		store := b.Around(adds(&calls, "outer"), adds(&calls, "inner"))
		mine := []event.Event{{Type: "a", Headers: map[string]string{"inner": "mine"}}, {Type: "b"}}
		before := maps.Clone(mine[0].Headers)
		result, err := store.Append(b.Ctx, "s", event.NoStream, mine...)
		b.Must(err)
		b.Must(store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			_, err := store.AppendTx(ctx, tx, "t", event.NoStream, mine...)
			return err
		}))
		all := b.All(store)
		if len(all) != 4 || len(result.Positions) != 2 || result.Version != 2 {
			t.Fatalf("appended %+v, and found %d events", result, len(all))
		}
		for i, e := range all {
			want := map[string]string{"outer": "added", "inner": "added", "both": "outer"}
			if i%2 == 0 {
				want["inner"] = "mine"
			}
			if !maps.Equal(e.Headers(), want) {
				t.Errorf("event %d has the headers %v, want %v", i, e.Headers(), want)
			}
		}
		if !maps.Equal(mine[0].Headers, before) || mine[1].Headers != nil {
			t.Errorf("the caller's events were changed: %+v", mine)
		}
		if want := []string{"inner default s", "outer default s", "inner default t",
			"outer default t"}; !slices.Equal(calls, want) {
			t.Errorf("calls %q, want %q", calls, want)
		}
		// An error of the append passes through, and the transaction can still be used.
		var conflict *event.VersionConflictError
		if _, err := store.Append(b.Ctx, "s", event.NoStream, mine...); !errors.As(err, &conflict) {
			t.Errorf("a conflict: %v", err)
		}
	})
}

func TestMisuseOfAppendMiddlewareIsAnError(t *testing.T) {
	refused := errors.New("refused")
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		for name, test := range map[string]struct {
			middleware event.AppendMiddleware
			says       string
		}{
			"a foreign context": {func(next event.AppendFunc) event.AppendFunc {
				return func(_ context.Context, a event.Appending) (event.Appended, error) {
					return next(context.Background(), a)
				}
			}, "its own context"},
			"another stream": {func(next event.AppendFunc) event.AppendFunc {
				return func(ctx context.Context, a event.Appending) (event.Appended, error) {
					a.Stream = "other"
					return next(ctx, a)
				}
			}, `"s" of "default" became "other" of "default"`},
			"another tenant": {func(next event.AppendFunc) event.AppendFunc {
				return func(ctx context.Context, a event.Appending) (event.Appended, error) {
					a.Tenant = "other"
					return next(ctx, a)
				}
			}, `"s" of "default" became "s" of "other"`},
			"a refusal": {func(event.AppendFunc) event.AppendFunc {
				return func(context.Context, event.Appending) (event.Appended, error) {
					return event.Appended{}, refused
				}
			}, "refused"},
		} {
			store := b.Around(test.middleware)
			if _, err := store.Append(b.Ctx, "s", event.Any, kit.SomeEvents(1)...); err == nil ||
				!strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if all := b.All(b.Store); len(all) != 0 {
			t.Errorf("%d events were appended", len(all))
		}
		for says, middleware := range map[string]event.AppendMiddleware{
			"must not contain nil": nil,
			"returned nil":         func(event.AppendFunc) event.AppendFunc { return nil },
		} {
			if _, err := b.Kind.Open(b.Ctx, b.Place, nil, middleware); err == nil ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("open: %v", err)
			}
		}
	})
}
