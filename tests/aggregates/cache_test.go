package aggregates_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestCacheSparesTheFoldsOfWhatItHas(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "account-1", event.Any, event.New(deposited{Cents: 5, By: "d"}), event.New(withdrawn{Cents: 1, By: "w"}))
		var calls int
		caching := counting(&calls).Cache(1 << 20)
		loads := func(c *aggregate.Category[account], folds int) {
			t.Helper()
			if n := load(b, c, &calls); n != folds {
				t.Errorf("%d events are folded, want %d", n, folds)
			}
		}
		loads(caching, 2)
		loads(caching, 0)
		b.Append("account-2", 1) // another stream
		b.MustAppend(b.Store, "account-1", event.Any, event.New(deposited{Cents: 2, By: "d"}))
		loads(caching, 1)
		if _, err := caching.Do(b.Ctx, b.Store, "1", deposit(3)); err != nil {
			t.Fatal(err)
		}
		loads(caching, 1)
		loads(caching.Check(func(account) error { return nil }), 0)
		loads(caching.Snapshot(100, 1), 0)
		loads(caching.Ignore("Closed"), 4)
		loads(counting(&calls).Cache(10), 4)

		// What the caller does with the state is not seen by others.
		at, err := caching.Load(b.Ctx, b.Store, "1")
		b.Must(err)
		at.State.By["d"] = 1_000
		loads(caching, 0)

		// A transaction of the caller sees events of its own, which the cache must not have.
		failed := errors.New("failed")
		err = b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			for range 2 {
				if _, err := caching.Do(ctx, b.Store.Within(tx), "1", deposit(4)); err != nil {
					return err
				}
			}
			return failed
		})
		if !errors.Is(err, failed) {
			t.Fatal(err)
		}
		loads(caching, 0)
		_, err = caching.Do(b.Ctx, b.Store, "1", deposit(8))
		b.Must(err)
		loads(caching, 1)
	})
}

// A refusal is about the present state, even if the cache has an older one.
func TestRefusalIsNotThatOfACachedState(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		caching := accounts.Cache(1 << 20)
		elsewhere := b.Again()
		_, err := caching.Do(b.Ctx, b.Store, "1", withdraw(1))
		if !errors.Is(err, errTooLittle) {
			t.Fatal(err)
		}
		for range 3 {
			_, err = accounts.Do(b.Ctx, elsewhere, "1", deposit(1))
			b.Must(err)
			_, err = caching.Do(b.Ctx, b.Store, "1", withdraw(1), aggregate.Retries(0))
			b.Must(err)
		}
	})
}

func TestErasureEndsCachedStates(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		caching := accounts.Cache(1 << 20)
		first, err := caching.Do(b.Ctx, b.Store, "1", deposit(1))
		b.Must(err)
		_, err = caching.Do(b.Ctx, b.Store, "1", deposit(2))
		b.Must(err)
		at, err := caching.Load(b.Ctx, b.Store, "1")
		b.Must(err)
		if at.State.Cents != 3 {
			t.Errorf("%+v", at)
		}
		_, err = b.Store.RedactEvents(b.Ctx, first.Appended.Positions, "test")
		b.Must(err)
		at, err = caching.Load(b.Ctx, b.Store, "1")
		b.Must(err)
		if at.State.Cents != 2 {
			t.Errorf("%+v", at)
		}
	})
}

// The last event of the state is gone, and another has its version.
func TestCachedStateOfEventsThatAreGoneIsNotUsed(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		caching := accounts.Cache(1 << 20)
		first, err := caching.Do(b.Ctx, b.Store, "1", deposit(1))
		b.Must(err)
		_, err = caching.Do(b.Ctx, b.Store, "1", deposit(2))
		b.Must(err)
		_, err = caching.Load(b.Ctx, b.Store, "1")
		b.Must(err)
		b.Must(b.Store.Truncate(b.Ctx, first.Position))
		_, err = accounts.Do(b.Ctx, b.Store, "1", deposit(4))
		b.Must(err)
		at, err := caching.Load(b.Ctx, b.Store, "1")
		b.Must(err)
		if at.State.Cents != 5 || at.Version != 2 {
			t.Errorf("%+v", at)
		}
	})
}

func TestCacheRefusesStatesThatJSONDoesNotKeep(t *testing.T) {
	type hidden struct{ cents int64 }
	err := aggregate.New("account", aggregate.On(func(h hidden, e event.Of[deposited]) hidden { return hidden{h.cents + e.Body.Cents} })).Cache(1).Validate()
	if err == nil || !strings.Contains(err.Error(), "cannot be in a cache") {
		t.Errorf("got %v", err)
	}
	if err := accounts.Cache(0).Validate(); err == nil || !strings.Contains(err.Error(), "1 or more bytes: 0") {
		t.Errorf("got %v", err)
	}
}
