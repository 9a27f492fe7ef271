package tests_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestRepeatReturnsTheFirstResult(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "s", event.Any, kit.SomeEvents(2)...)
		first := b.MustAppend(b.Store, "s", event.Exact(2).WithKey("k"), kit.SomeEvents(3)...)
		b.MustAppend(b.Store, "other", event.Any, kit.SomeEvents(1)...)
		b.MustAppend(b.Store, "s", event.Any, kit.SomeEvents(1)...)
		want := first
		want.Repeated = true
		// The stream has a later version by now: the repeat wins over the conflict, whatever version and events it is
		// given.
		for _, expected := range []event.Expected{event.Exact(2), event.Any, event.NoStream} {
			if got := b.MustAppend(b.Store, "s", expected.WithKey("k"), kit.SomeEvents(3)...); !reflect.DeepEqual(got,
				want) {
				t.Errorf("%v: got %+v, want %+v", expected, got, want)
			}
		}
		b.MustHave(7)
		// Another tenant has keys of its own.
		tenant, err := b.Store.CreateTenant(b.Ctx, "b")
		b.Must(err)
		if r := b.MustAppend(tenant, "s", event.Any.WithKey("k"), kit.SomeEvents(1)...); r.Repeated ||
			r.Positions[0] != 1 {
			t.Errorf("another tenant: %+v", r)
		}
	})
}

func TestKeyBelongsToOneStream(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "s", event.Any.WithKey("k"), kit.SomeEvents(1)...)
		_, err := b.Store.Append(b.Ctx, "other", event.Any.WithKey("k"), kit.SomeEvents(1)...)
		if !errors.Is(err, event.ErrKeyReused) || !strings.Contains(err.Error(), `key "k" was used for stream "s"`) {
			t.Errorf("error %v", err)
		}
		b.MustHave(1)
	})
}

func TestKeyOfAnAppendThatFailedCanBeUsed(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "s", event.Any, kit.SomeEvents(1)...)
		for _, stream := range []string{"s", "other"} {
			if _, err := b.Store.Append(b.Ctx, stream, event.Exact(7).WithKey("k"),
				kit.SomeEvents(1)...); !errors.Is(err, event.ErrVersionConflict) {
				t.Fatal(err)
			}
		}
		if got := b.MustAppend(b.Store, "s", event.Exact(1).WithKey("k"), kit.SomeEvents(1)...); got.Repeated ||
			got.Version != 2 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestConcurrentRepeatsAppendOnce(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		const callers, keys, events = 8, 20, 100
		for k := range keys {
			results := make([]event.Appended, callers)
			b.Must(kit.Together(callers, func(i int) (err error) {
				// Half of them expect a version that is true only for the first.
				expected := []event.Expected{event.Any, event.Exact(int64(k * events))}[i%2]
				results[i], err = b.Store.Append(b.Ctx, "s", expected.WithKey(fmt.Sprint(k)), kit.SomeEvents(events)...)
				return err
			}))
			appended := 0
			for i := range results {
				if !results[i].Repeated {
					appended++
				}
				results[i].Repeated = false
				if len(results[i].Positions) != events || !reflect.DeepEqual(results[i], results[0]) {
					t.Fatalf("key %d: results %+v and %+v", k, results[i], results[0])
				}
			}
			if appended != 1 {
				t.Fatalf("key %d: %d callers appended", k, appended)
			}
		}
		b.MustHave(keys * events)
	})
}
