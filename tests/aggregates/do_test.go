package aggregates_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// mustBe fails the test unless a loaded aggregate is what the stream folds to.
func mustBe(b *kit.Bundle, got aggregate.Aggregate[account]) {
	b.T.Helper()
	want, version, position, err := folded(b.Ctx, b.Store, got.Stream)
	b.Must(err)
	if err := same(got.State, want); err != nil || got.Version != version || got.Position != position {
		b.T.Errorf("%s: %v; version %d at %d, want %d at %d", got.Stream, err, got.Version, got.Position, version,
			position)
	}
}

func TestDoDecidesOnTheStateAndAppends(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		empty, err := accounts.Load(b.Ctx, b.Store, "1")
		b.Must(err)
		if empty.Version != 0 || empty.Stream != "account-1" || empty.State.Cents != 0 {
			t.Errorf("an aggregate without events: %+v", empty)
		}
		first, err := accounts.Do(b.Ctx, b.Store, "1", deposit(500))
		b.Must(err)
		second, err := accounts.Do(b.Ctx, b.Store, "1", withdraw(200))
		b.Must(err)
		if first.State.Cents != 500 || second.State.Cents != 300 || second.Version != 2 ||
			second.Position != second.Appended.Last() {
			t.Errorf("%+v, then %+v", first, second)
		}
		mustBe(b, second.Aggregate)
		if _, err := accounts.Do(b.Ctx, b.Store, "1",
			withdraw(301)); err != errTooLittle { //nolint:errorlint // it must be the error itself
			t.Errorf("refused by %v", err)
		}
		none, err := accounts.Do(b.Ctx, b.Store, "1", func(account) ([]event.Event, error) { return nil, nil })
		b.Must(err)
		if none.Appended.Positions != nil || none.Version != 2 || none.Position != second.Position ||
			none.State.Cents != 300 {
			t.Errorf("a decision without events: %+v", none)
		}
		at, err := accounts.Load(b.Ctx, b.Store, "1")
		b.Must(err)
		mustBe(b, at)
	})
}

func TestDoDecidesAgainAfterAConflict(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		_, err := accounts.Do(b.Ctx, b.Store, "1", deposit(500))
		b.Must(err)
		for _, category := range []*aggregate.Category[account]{accounts,
			accounts.Check(func(account) error { return nil }), accounts.Snapshot(1, 1)} {
			decided := 0
			rival := func(a account) ([]event.Event, error) {
				decided++
				if decided < 3 {
					_, err := b.Store.Append(b.Ctx, "account-1", event.Any, event.New(deposited{Cents: 1, By: "rival"}))
					b.Must(err)
				}
				return withdraw(10)(a)
			}
			r, err := category.Do(b.Ctx, b.Store, "1", rival)
			b.Must(err)
			if decided != 3 {
				t.Errorf("decided %d times", decided)
			}
			mustBe(b, r.Aggregate)
			decided = 0
			_, err = category.Do(b.Ctx, b.Store, "1", rival, aggregate.Retries(0))
			if !errors.Is(err, event.ErrVersionConflict) || decided != 1 {
				t.Errorf("without retries: decided %d times, %v", decided, err)
			}
		}
	})
}

func TestRepeatedCommandHasItsEffectOnce(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		_, err := accounts.Do(b.Ctx, b.Store, "1", deposit(500))
		b.Must(err)
		first, err := accounts.Do(b.Ctx, b.Store, "1", withdraw(500), aggregate.Key("all"))
		b.Must(err)
		_, err = accounts.Do(b.Ctx, b.Store, "1", deposit(1))
		b.Must(err)
		// The decision refuses now, since the money is gone.
		again, err := accounts.Do(b.Ctx, b.Store, "1", withdraw(500), aggregate.Key("all"))
		b.Must(err)
		if !again.Appended.Repeated || !slices.Equal(again.Appended.Positions, first.Appended.Positions) ||
			again.Appended.Version != 2 {
			t.Errorf("the repeat has %+v, the first time %+v", again.Appended, first.Appended)
		}
		mustBe(b, again.Aggregate)
		// It also repeats if it would append something, or nothing.
		for _, decide := range []func(account) ([]event.Event,
			error){deposit(7), func(account) ([]event.Event, error) { return nil, nil }} {
			again, err = accounts.Do(b.Ctx, b.Store, "1", decide, aggregate.Key("all"))
			b.Must(err)
			if !again.Appended.Repeated || again.Version != 3 {
				t.Errorf("%+v", again)
			}
			mustBe(b, again.Aggregate)
		}
		for _, decide := range []func(account) ([]event.Event, error){deposit(7), withdraw(7)} {
			_, err = accounts.Do(b.Ctx, b.Store, "2", decide, aggregate.Key("all"))
			if !errors.Is(err, event.ErrKeyReused) {
				t.Errorf("the key of another stream: %v", err)
			}
		}
	})
}

// A client sends a command many times at once. All callers get the one effect, none a refusal.
func TestCommandThatIsSentManyTimesAtOnce(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		_, err := accounts.Do(b.Ctx, b.Store, "1", deposit(1000))
		b.Must(err)
		for i := range 10 {
			var group sync.WaitGroup
			var effects atomic.Int64
			for range 8 {
				group.Go(func() {
					r, err := accounts.Do(b.Ctx, b.Store, "1", withdraw(1000), aggregate.Key(fmt.Sprint("all ", i)))
					if err != nil {
						t.Error(err)
					} else if !r.Appended.Repeated {
						effects.Add(1)
					}
				})
			}
			group.Wait()
			if n := effects.Load(); n != 1 {
				t.Errorf("%d effects", n)
			}
			_, err = accounts.Do(b.Ctx, b.Store, "1", deposit(1000))
			b.Must(err)
		}
	})
}

func TestConditionHoldsForEveryStateAfterADecision(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		checked := accounts.Check(func(a account) error {
			if a.Cents < 0 {
				return errNegative
			}
			return nil
		})
		without := func(account) ([]event.Event, error) { return []event.Event{event.New(withdrawn{Cents: 5})}, nil }
		if _, err := checked.Do(b.Ctx, b.Store, "1",
			without); err != errNegative { //nolint:errorlint // it must be the error itself
			t.Error(err)
		}
		_, err := aggregate.Run(b.Ctx, b.Store, func(ctx context.Context, u *aggregate.Unit) error {
			m, err := checked.Member(ctx, u, "1")
			if err != nil {
				return err
			}
			return m.Append(event.New(withdrawn{Cents: 5}))
		})
		if err != errNegative { //nolint:errorlint // it must be the error itself
			t.Error(err)
		}
		at, err := accounts.Load(b.Ctx, b.Store, "1")
		b.Must(err)
		if at.Version != 0 {
			t.Errorf("%+v", at)
		}
	})
}

func TestEventThatACategoryDoesNotKnow(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		closing := event.Event{Type: "Closed", Body: []byte(`{}`)}
		appends := func(e event.Event) func(account) ([]event.Event, error) {
			return func(account) ([]event.Event, error) { return []event.Event{event.New(deposited{Cents: 1}), e}, nil }
		}
		if _, err := accounts.Do(b.Ctx, b.Store, "1", appends(closing)); !errors.Is(err, aggregate.ErrUnknownType) {
			t.Error(err)
		}
		var decoding *event.DecodeError
		if _, err := accounts.Do(b.Ctx, b.Store, "1",
			appends(event.Event{Type: "Deposited", Body: []byte(`7`)})); !errors.As(err, &decoding) {
			t.Error(err)
		}
		if at, err := accounts.Load(b.Ctx, b.Store, "1"); err != nil || at.Version != 0 {
			t.Errorf("%+v, %v", at, err)
		}
		_, err := b.Store.Append(b.Ctx, "account-1", event.Any, closing)
		b.Must(err)
		if _, err := accounts.Load(b.Ctx, b.Store, "1"); !errors.Is(err, aggregate.ErrUnknownType) {
			t.Error(err)
		}
		ignoring := accounts.Ignore("Closed")
		r, err := ignoring.Do(b.Ctx, b.Store, "1", appends(closing))
		b.Must(err)
		if r.Version != 3 || r.State.Cents != 1 {
			t.Errorf("%+v", r)
		}
	})
}

func TestWithinSeesAndSharesTheTransaction(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		undone := errors.New("undone")
		for _, failure := range []error{undone, nil} {
			err := b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
				s := b.Store.Within(tx)
				for i := range 3 {
					r, err := accounts.Do(ctx, s, "1", deposit(5), aggregate.Key(fmt.Sprint("key ", i)))
					if err != nil {
						return err
					}
					if r.State.Cents != int64(5*(i+1)) || r.Version != int64(i+1) {
						t.Errorf("%+v", r)
					}
				}
				if _, err := accounts.Do(ctx, s, "1", withdraw(99)); !errors.Is(err, errTooLittle) {
					t.Error(err)
				}
				again, err := accounts.Do(ctx, s, "1", withdraw(99), aggregate.Key("key 2"))
				if err != nil || !again.Appended.Repeated || again.Version != 3 {
					t.Errorf("%+v, %v", again, err)
				}
				return failure
			})
			if !errors.Is(err, failure) {
				t.Error(err)
			}
		}
		at, err := accounts.Load(b.Ctx, b.Store, "1")
		b.Must(err)
		if at.Version != 3 {
			t.Errorf("%+v", at)
		}
		mustBe(b, at)
	})
}

func TestConflictWithinATransactionIsDecidedAgain(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tries := 0
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			_, err := aggregate.Run(ctx, b.Store.Within(tx), func(ctx context.Context, u *aggregate.Unit) error {
				for _, id := range []string{"0", "1"} {
					m, err := accounts.Member(ctx, u, id)
					if err != nil {
						return err
					}
					if err := m.Append(event.New(deposited{Cents: 5})); err != nil {
						return err
					}
				}
				tries++
				if tries == 1 {
					_, err := b.Store.Append(b.Ctx, "account-1", event.Any, event.New(deposited{Cents: 1}))
					return err
				}
				return nil
			})
			return err
		}))
		for id, version := range map[string]int64{"0": 1, "1": 2} {
			at, err := accounts.Load(b.Ctx, b.Store, id)
			b.Must(err)
			if at.Version != version || tries != 2 {
				t.Errorf("%+v after %d tries", at, tries)
			}
		}
	}, kit.ConcurrentWrites)
}

func TestLongStreamIsReadInPages(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var calls int
		saving := counting(&calls).Snapshot(1, 1)
		large := event.New(deposited{Cents: 1, By: strings.Repeat("x", 1<<20)})
		small := event.New(deposited{Cents: 1, By: "s"})
		for _, list := range [][]event.Event{slices.Repeat([]event.Event{large}, 9),
			slices.Repeat([]event.Event{small}, 10_500), {small}} {
			_, err := b.Store.Append(b.Ctx, "account-1", event.Any, list...)
			b.Must(err)
		}
		if n := load(b, saving, &calls); n != 10_510 {
			t.Errorf("%d events are folded", n)
		}
		_, err := saving.Do(b.Ctx, b.Store, "1", deposit(1))
		b.Must(err)
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			for _, c := range []*aggregate.Category[account]{accounts, saving} {
				at, err := c.Load(ctx, b.Store.Within(tx), "1")
				if err != nil {
					return err
				}
				mustBe(b, at)
			}
			return nil
		}))
		if n := load(b, saving, &calls); n != 0 {
			t.Errorf("%d events are folded", n)
		}
	})
}

// A fold runs while the store still reads. What ends there leaves the store, and a transaction, usable.
func TestFoldThatFailsWhileTheStoreReads(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.With(t, 1)
		b.Append("account-1", 3)
		for range 300 {
			b.MustAppend(b.Store, "account-2", event.Any, event.New(deposited{Cents: 1}))
		}
		panicking := aggregate.New("account",
			aggregate.On(func(account, event.Of[deposited]) account { panic("fold") }))
		load := func(ctx context.Context, s aggregate.Store) {
			if _, err := accounts.Load(ctx, s, "1"); !errors.Is(err, aggregate.ErrUnknownType) {
				t.Errorf("got %v", err)
			}
			func() {
				defer func() {
					if r := recover(); r != "fold" {
						t.Errorf("the panic is %v", r)
					}
				}()
				_, err := panicking.Load(ctx, s, "2")
				t.Error("no panic, but", err)
			}()
			at, err := accounts.Load(ctx, s, "2")
			b.Must(err)
			if at.Version != 300 || at.State.Cents != 300 {
				t.Errorf("version %d, %d cents", at.Version, at.State.Cents)
			}
		}
		for range 3 {
			load(b.Ctx, b.Store)
		}
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			load(ctx, b.Store.Within(tx))
			return nil
		}))
	})
}
