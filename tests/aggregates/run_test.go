package aggregates_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// transfer moves money between two accounts.
func transfer(from, to string, cents int64) func(ctx context.Context, u *aggregate.Unit) error {
	return func(ctx context.Context, u *aggregate.Unit) error {
		payer, err := accounts.Member(ctx, u, from)
		if err != nil {
			return err
		}
		payee, err := accounts.Member(ctx, u, to)
		if err != nil {
			return err
		}
		if payer.State.Cents < cents {
			return errTooLittle
		}
		return errors.Join(payer.Append(event.New(withdrawn{Cents: cents, By: to})),
			payee.Append(event.New(deposited{Cents: cents, By: from})))
	}
}

func TestRunAppendsToSeveralStreamsOrToNone(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		_, err := accounts.Do(b.Ctx, b.Store, "a", deposit(100))
		b.Must(err)
		first, err := aggregate.Run(b.Ctx, b.Store, transfer("a", "b", 100), aggregate.Key("transfer"))
		b.Must(err)
		a, err := accounts.Load(b.Ctx, b.Store, "a")
		b.Must(err)
		other, err := accounts.Load(b.Ctx, b.Store, "b")
		b.Must(err)
		if a.State.Cents != 0 || other.State.Cents != 100 || first.Position != max(a.Position, other.Position) ||
			first.Repeated {
			t.Errorf("%+v, %+v, %+v", first, a, other)
		}
		again, err := aggregate.Run(b.Ctx, b.Store, transfer("a", "b", 100), aggregate.Key("transfer"))
		b.Must(err)
		if !again.Repeated || again.Position != first.Position {
			t.Errorf("the repeat: %+v, the first time: %+v", again, first)
		}
		_, err = aggregate.Run(b.Ctx, b.Store, transfer("a",
			"b", 100))
		if err != errTooLittle { //nolint:errorlint // it must be the error itself
			t.Error(err)
		}
		none, err := aggregate.Run(b.Ctx, b.Store, func(context.Context, *aggregate.Unit) error { return nil },
			aggregate.Key("none"))
		if err != nil || none != (aggregate.Outcome{}) {
			t.Errorf("%+v, %v", none, err)
		}
	})
}

func TestHookOfRunSharesItsTransaction(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		refused := errors.New("refused")
		for _, failure := range []error{refused, nil} {
			_, err := aggregate.Run(b.Ctx, b.Store, func(ctx context.Context, u *aggregate.Unit) error {
				m, err := accounts.Member(ctx, u, "a")
				if err != nil {
					return err
				}
				b.Must(u.Append("audit", event.Any, event.Event{Type: "Audited"}))
				b.Must(u.Then(b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
					at, err := accounts.Load(ctx, b.Store.Within(tx), "a")
					if err != nil || at.Version != 1 {
						t.Errorf("the hook sees %+v, %v", at, err)
					}
					return errors.Join(tx.Record(ctx, "hook", event.Envelope{Position: 1}), failure)
				})))
				return m.Append(event.New(deposited{Cents: 1}))
			})
			if !errors.Is(err, failure) {
				t.Error(err)
			}
			records, err := b.Store.Applied(b.Ctx, "hook")
			b.Must(err)
			audit, err := b.Store.Stream(b.Ctx, "audit")
			b.Must(err)
			at, err := accounts.Load(b.Ctx, b.Store, "a")
			b.Must(err)
			want := int64(0)
			if failure == nil {
				want = 1
			}
			if int64(len(records)) != want || audit.Version != want || at.Version != want {
				t.Errorf("after %v: %d records, audit %d, account %d", failure, len(records), audit.Version, at.Version)
			}
		}
	})
}

func TestUnitRefusesWhatItCannotDecide(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		var kept *aggregate.Member[account]
		var unit *aggregate.Unit
		other := aggregate.New("account", aggregate.On(func(n int, _ event.Of[deposited]) int { return n + 1 }))
		for name, fn := range map[string]func(ctx context.Context, u *aggregate.Unit) error{
			"loaded": func(_ context.Context, u *aggregate.Unit) error {
				return u.Append("account-a", event.Any, event.New(deposited{Cents: 1}))
			},
			"twice": func(_ context.Context, u *aggregate.Unit) error {
				_ = u.Append("audit", event.Any, event.Event{Type: "Audited"})
				_ = u.Append("audit", event.Any, event.Event{Type: "Audited"})
				return nil
			},
			"key": func(_ context.Context, u *aggregate.Unit) error {
				_ = u.Append("audit", event.Any.WithKey("k"), event.Event{Type: "Audited"})
				return nil
			},
			"another type": func(ctx context.Context, u *aggregate.Unit) error {
				_, err := other.Member(ctx, u, "a")
				return err
			},
			"hooks": func(_ context.Context, u *aggregate.Unit) error {
				return u.Then(b.Store.Hook(func(context.Context, kit.Tx) error { return nil }))
			},
		} {
			_, err := aggregate.Run(b.Ctx, b.Store, func(ctx context.Context, u *aggregate.Unit) error {
				m, err := accounts.Member(ctx, u, "a")
				if err != nil {
					return err
				}
				if again, err := accounts.Member(ctx, u, "a"); err != nil || again != m {
					t.Errorf("%s: the second call returns another member, %v", name, err)
				}
				kept, unit = m, u
				return fn(ctx, u)
			})
			if err == nil {
				t.Errorf("%s: not refused", name)
			}
		}
		if err := kept.Append(event.New(deposited{Cents: 1})); !errors.Is(err, aggregate.ErrUnitEnded) {
			t.Error(err)
		}
		if _, err := accounts.Member(b.Ctx, unit, "b"); !errors.Is(err, aggregate.ErrUnitEnded) {
			t.Error(err)
		}
		ended := errors.Join(unit.Append("audit", event.Any, event.Event{Type: "Audited"}),
			unit.Then(b.Store.Hook(func(context.Context, kit.Tx) error { return nil })))
		if !errors.Is(ended, aggregate.ErrUnitEnded) {
			t.Error(ended)
		}
		if at, err := accounts.Load(b.Ctx, b.Store, "a"); err != nil || at.Version != 0 {
			t.Errorf("%+v, %v", at, err)
		}
	})
}

// A repeat gets the result of the first time, however it decides now: it may be refused before it has loaded the same
// aggregates, and an append without the key may conflict.
func TestRepeatOfRunDecidesOtherwise(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		blocked := false
		command := func(ctx context.Context, u *aggregate.Unit) error {
			if _, err := accounts.Member(ctx, u, "customer"); err != nil {
				return err
			}
			if blocked {
				return errTooLittle
			}
			m, err := accounts.Member(ctx, u, "order")
			if err != nil {
				return err
			}
			return errors.Join(u.Append("command-7", event.NoStream, event.Event{Type: "Received"}),
				m.Append(event.New(deposited{Cents: 1})))
		}
		first, err := aggregate.Run(b.Ctx, b.Store, command, aggregate.Key("7"))
		b.Must(err)
		for _, retries := range []int{0, 3} {
			for _, blocked = range []bool{false, true} {
				again, err := aggregate.Run(b.Ctx, b.Store, command, aggregate.Key("7"), aggregate.Retries(retries))
				if err != nil || !again.Repeated || again.Position != first.Position {
					t.Errorf("the repeat: %+v, %v, the first time: %+v", again, err, first)
				}
			}
		}
	})
}

// The caller commits its transaction though its command failed: nothing of the command is in it.
func TestCommandThatFailsLeavesNothingInTheTransaction(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			limited, cancel := context.WithCancel(ctx)
			defer cancel()
			_, err := aggregate.Run(limited, b.Store.Within(tx), func(ctx context.Context, u *aggregate.Unit) error {
				m, err := accounts.Member(ctx, u, "a")
				if err != nil {
					return err
				}
				hook := b.Store.Hook(func(context.Context, kit.Tx) error {
					cancel()
					return errTooLittle
				})
				return errors.Join(m.Append(event.New(deposited{Cents: 1})), u.Then(hook))
			})
			if !errors.Is(err, errTooLittle) {
				t.Error(err)
			}
			return tx.Record(ctx, "committed", event.Envelope{Position: 1})
		}))
		if at, err := accounts.Load(b.Ctx, b.Store, "a"); err != nil || at.Version != 0 {
			t.Errorf("%+v, %v", at, err)
		}
	})
}

// An error of the function is its own business, whatever it wraps.
func TestErrorOfADecisionIsNotRetried(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		calls := 0
		own := fmt.Errorf("another service: %w", event.ErrVersionConflict)
		_, err := accounts.Do(b.Ctx, b.Store, "1", func(account) ([]event.Event, error) { calls++; return nil, own })
		_, again := aggregate.Run(b.Ctx, b.Store, func(context.Context, *aggregate.Unit) error { calls++; return own })
		if err != own || again != own || calls != 2 { //nolint:errorlint // it must be the error itself
			t.Errorf("%v and %v after %d calls", err, again, calls)
		}
	})
}

// A transaction that is open needs no second connection, even for the first load with snapshots.
func TestLoadWithinNeedsOneConnection(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.With(t, 1)
		saving := accounts.Snapshot(1, 1)
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			for range 2 {
				if _, err := saving.Do(ctx, b.Store.Within(tx), "1", deposit(1)); err != nil {
					return err
				}
			}
			at, err := saving.Load(ctx, b.Store.Within(tx), "1")
			if at.Snapshot != 2 {
				t.Errorf("%+v", at)
			}
			return err
		}))
	})
}

// Transfers in both directions lock the same streams. No money is lost, and no caller gets a deadlock.
func TestTransfersInBothDirections(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		const n = 3
		for i := range n {
			_, err := accounts.Do(b.Ctx, b.Store, fmt.Sprint(i), deposit(1000))
			b.Must(err)
		}
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for i := range 6 {
					from, to := rand.IntN(n), rand.IntN(n-1)
					if to >= from {
						to++
					}
					options := []aggregate.Option{aggregate.Retries(1000)}
					if i%2 == 0 {
						options = append(options, aggregate.Key(fmt.Sprint(rand.Int64())))
					}
					_, err := aggregate.Run(b.Ctx, b.Store,
						transfer(fmt.Sprint(from), fmt.Sprint(to), rand.Int64N(300)), options...)
					if err != nil && !errors.Is(err, errTooLittle) {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		total := int64(0)
		for i := range n {
			at, err := accounts.Load(b.Ctx, b.Store, fmt.Sprint(i))
			b.Must(err)
			mustBe(b, at)
			total += at.State.Cents
			if at.State.Cents < 0 {
				t.Errorf("%+v", at)
			}
		}
		if total != n*1000 {
			t.Errorf("%d in all", total)
		}
	})
}
