package aggregates_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestCacheSparesTheFoldsOfWhatItHas(t *testing.T) {
	kit.RunPage(t, func(t *testing.T, b *kit.Bundle) {
		b.MustAppend(b.Store, "account-1", event.Any, event.New(deposited{Cents: 5, By: "d"}),
			event.New(withdrawn{Cents: 1, By: "w"}))
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

// depositedTwice returns a category with a cache, and the first of its two commands on account 1.
func depositedTwice(b *kit.Bundle) (*aggregate.Category[account], aggregate.Result[account]) {
	b.T.Helper()
	caching := accounts.Cache(1 << 20)
	first, err := caching.Do(b.Ctx, b.Store, "1", deposit(1))
	b.Must(err)
	_, err = caching.Do(b.Ctx, b.Store, "1", deposit(2))
	b.Must(err)
	return caching, first
}

func TestErasureEndsCachedStates(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		caching, first := depositedTwice(b)
		if at := loaded(b, caching, b.Store); at.State.Cents != 3 {
			t.Errorf("%+v", at)
		}
		_, err := b.Store.RedactEvents(b.Ctx, first.Appended.Positions, "test")
		b.Must(err)
		if at := loaded(b, caching, b.Store); at.State.Cents != 2 {
			t.Errorf("%+v", at)
		}
	})
}

// The last event of the state is gone, and another has its version.
func TestCachedStateOfEventsThatAreGoneIsNotUsed(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		caching, first := depositedTwice(b)
		loaded(b, caching, b.Store)
		b.Must(b.Store.Truncate(b.Ctx, first.Position))
		_, err := accounts.Do(b.Ctx, b.Store, "1", deposit(4))
		b.Must(err)
		if at := loaded(b, caching, b.Store); at.State.Cents != 5 || at.Version != 2 {
			t.Errorf("%+v", at)
		}
	})
}

func TestCacheRefusesStatesThatJSONDoesNotKeep(t *testing.T) {
	type hidden struct{ cents int64 }
	err := aggregate.New("account",
		aggregate.On(func(h hidden,
			e event.Of[deposited]) hidden {
			return hidden{h.cents + e.Body.Cents}
		})).Cache(1).Validate()
	if err == nil || !strings.Contains(err.Error(), "cannot be in a cache") {
		t.Errorf("got %v", err)
	}
	if err := accounts.Cache(0).Validate(); err == nil || !strings.Contains(err.Error(), "1 or more bytes: 0") {
		t.Errorf("got %v", err)
	}
}

// loaded returns account 1.
func loaded(b *kit.Bundle, c *aggregate.Category[account], s aggregate.Store) aggregate.Aggregate[account] {
	b.T.Helper()
	at, err := c.Load(b.Ctx, s, "1")
	b.Must(err)
	return at
}

// An erasure by another store is in each snapshot that is saved after it, although the cache has the state from before.
func TestSnapshotsHaveNothingOfACachedStateThatWasErased(t *testing.T) {
	for name, checks := range map[string][]func(account) error{"": nil,
		" with a condition": {func(account) error { return nil }}} {
		t.Run("an append"+name, func(t *testing.T) {
			kit.Run(t, func(t *testing.T, b *kit.Bundle) {
				caching := accounts.Snapshot(3, 1).Cache(1 << 20)
				for _, condition := range checks {
					caching = caching.Check(condition)
				}
				elsewhere := b.Again()
				for range 4 {
					_, err := caching.Do(b.Ctx, b.Store, "1", deposit(1))
					b.Must(err)
				}
				_, err := caching.Load(b.Ctx, b.Store, "1")
				b.Must(err)
				_, err = elsewhere.EraseStream(b.Ctx, "account-1", "test")
				b.Must(err)
				for range 3 {
					_, err = caching.Do(b.Ctx, b.Store, "1", deposit(100))
					b.Must(err)
				}
				mustBe(b, loaded(b, accounts.Snapshot(3, 1), elsewhere))
			})
		})
	}
	t.Run("a snapshotter", func(t *testing.T) {
		kit.Run(t, func(t *testing.T, b *kit.Bundle) {
			saving := accounts.Snapshot(2, 1)
			caching := accounts.Cache(1 << 20)
			elsewhere := b.Again()
			b.MustAppend(b.Store, "account-1", event.Any, event.New(deposited{Cents: 5, By: "secret"}),
				event.New(deposited{Cents: 5, By: "x"}))
			// with and without generations
			for _, c := range []*aggregate.Category[account]{caching, caching.Snapshot(2, 1), saving.Cache(1 << 20)} {
				_, err := c.Load(b.Ctx, b.Store, "1")
				b.Must(err)
				_, err = elsewhere.RedactEvents(b.Ctx, []int64{1}, "test")
				b.Must(err)
				if c != caching {
					b.Must(c.SaveSnapshots(b.Ctx, b.Store, b.All(b.Store)))
				}
				mustBe(b, loaded(b, saving, elsewhere))
			}
		})
	})
}

type countsDecodes struct{ N int }

var decodesCounted atomic.Int64

func (c countsDecodes) MarshalJSON() ([]byte, error) { return json.Marshal(c.N) }

func (c *countsDecodes) UnmarshalJSON(b []byte) error {
	decodesCounted.Add(1)
	return json.Unmarshal(b, &c.N)
}

// A state that is in the cache is not read from the snapshot again.
func TestCacheSparesTheSnapshot(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.With(t, 0)
		saving := aggregate.New("account",
			aggregate.On(func(c countsDecodes,
				e event.Of[deposited]) countsDecodes {
				return countsDecodes{c.N + 1}
			})).Snapshot(2, 1)
		for range 4 {
			_, err := saving.Do(b.Ctx, b.Store, "1",
				func(countsDecodes) ([]event.Event, error) { return []event.Event{event.New(deposited{})}, nil })
			b.Must(err)
		}
		caching := saving.Cache(1 << 20)
		for load := range 3 {
			decodesCounted.Store(0)
			at, err := caching.Load(b.Ctx, b.Store, "1")
			b.Must(err)
			if n := decodesCounted.Load(); at.Version != 4 || at.State.N != 4 || at.Snapshot != 4 ||
				load > 0 && n != 1 {
				t.Errorf("load %d: %+v, %d states are decoded", load, at, n)
			}
		}
	})
}
