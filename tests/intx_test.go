package tests_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestAppendTxIsVisibleAndWakesAfterTheCommit(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		wakes := b.CountWakes()
		tx, err := b.Store.Begin(b.Ctx)
		b.Must(err)
		defer func() { _ = tx.Rollback(context.WithoutCancel(b.Ctx)) }()
		result, err := b.Store.AppendTx(b.Ctx, tx, "s", event.NoStream, kit.SomeEvents(2)...)
		if err != nil || result.Version != 2 || len(result.Positions) != 2 {
			t.Fatalf("%+v, %v", result, err)
		}
		if len(b.All(b.Store)) != 0 || wakes("default") != 0 {
			t.Error("events are visible, or announced, before the commit")
		}
		b.Must(tx.Commit(b.Ctx))
		b.Store.Wake()
		if n := len(b.All(b.Store)); n != 2 || wakes("default") != 1 {
			t.Errorf("%d events, %d wakes", n, wakes("default"))
		}
	})
}

func TestInTxCommitsAndWakesEveryTenantAppendedTo(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenants := b.Tenants(4)
		first, second, third := tenants[1], tenants[2], tenants[3]
		wakes := b.CountWakes()
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			if _, err := first.AppendTx(ctx, tx, "s", event.Any, kit.SomeEvents(1)...); err != nil {
				return err
			}
			if _, err := second.AppendTx(ctx, tx, "s", event.Any.WithKey("k"), kit.SomeEvents(1)...); err != nil {
				return err
			}
			if _, err := third.AppendTx(ctx, tx, "s", event.Exact(1), kit.SomeEvents(1)...); !errors.Is(err,
				event.ErrVersionConflict) {
				return err
			}
			if wakes(first.Name())+wakes(second.Name()) != 0 || len(b.All(first)) != 0 {
				t.Error("visible or woken before the commit")
			}
			return tx.Record(ctx, "p", event.Envelope{Position: 7})
		}))
		for tenant, want := range map[kit.Tenant]int{first: 1, second: 1, third: 0, b.Store: 0} {
			if wakes(tenant.Name()) != want || len(b.All(tenant)) != want {
				t.Errorf("%s: %d wakes and %d events, want %d", tenant.Name(), wakes(tenant.Name()), len(b.All(tenant)),
					want)
			}
		}
		if recorded := b.Positions("p"); !reflect.DeepEqual(recorded, []int64{7}) {
			t.Errorf("recorded %v", recorded)
		}
	})
}

func TestInTxThatFailsLeavesNothingAndWakesNoProjection(t *testing.T) {
	boom := errors.New("boom")
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		wakes := b.CountWakes()
		for name, c := range map[string]struct {
			fail func(ctx context.Context, cancel context.CancelFunc, tx kit.Tx) error
			want error
		}{
			"error": {func(context.Context, context.CancelFunc, kit.Tx) error { return boom }, boom},
			"panic": {func(context.Context, context.CancelFunc, kit.Tx) error { panic(boom) }, boom},
			"commit": {
				func(ctx context.Context, _ context.CancelFunc, tx kit.Tx) error { return tx.Commit(ctx) }, nil,
			},
			"context that ended": {
				func(_ context.Context, cancel context.CancelFunc, _ kit.Tx) error { cancel(); return nil },
				context.Canceled,
			},
			"error of a statement": {func(ctx context.Context, _ context.CancelFunc, tx kit.Tx) error {
				return tx.Exec(ctx, "insert into nothing values (1)")
			}, nil},
		} {
			ctx, cancel := context.WithCancel(b.Ctx)
			err := func() (err error) {
				defer func() {
					if p := recover(); p != nil {
						err = p.(error)
					}
				}()
				return b.Store.InTx(ctx, func(ctx context.Context, tx kit.Tx) error {
					if _, err := b.Store.AppendTx(ctx, tx, "s", event.NoStream.WithKey("k"),
						kit.SomeEvents(3)...); err != nil {
						return err
					}
					if err := tx.Record(ctx, "p", event.Envelope{Position: 7}); err != nil {
						return err
					}
					return c.fail(ctx, cancel, tx)
				})
			}()
			cancel()
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: error %v", name, err)
			}
			if events, rows := len(b.All(b.Store)), len(b.Positions("p")); events != 0 || rows != 0 ||
				wakes("default") != 0 {
				t.Errorf("%s: %d events, %d rows, %d wakes", name, events, rows, wakes("default"))
			}
		}
		if r := b.MustAppend(b.Store, "s", event.NoStream.WithKey("k"), kit.SomeEvents(1)...); r.Repeated {
			t.Error("the key is claimed")
		}
	})
}

func TestConflictAndRepeatLeaveTheCallersTransactionUsable(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		first := b.MustAppend(b.Store, "s", event.Any.WithKey("used"), kit.SomeEvents(2)...)
		b.Must(b.Store.InTx(b.Ctx, func(ctx context.Context, tx kit.Tx) error {
			if err := tx.Record(ctx, "p", event.Envelope{Position: 7}); err != nil {
				return err
			}
			_, err := b.Store.AppendTx(ctx, tx, "s", event.NoStream.WithKey("new"), kit.SomeEvents(1)...)
			if !errors.Is(err, event.ErrVersionConflict) {
				t.Errorf("error %v", err)
			}
			again, err := b.Store.AppendTx(ctx, tx, "s", event.NoStream.WithKey("used"), kit.SomeEvents(2)...)
			if err != nil || !again.Repeated || !reflect.DeepEqual(again.Positions, first.Positions) {
				t.Errorf("repeat: %+v, %v", again, err)
			}
			now, err := b.Store.AppendTx(ctx, tx, "s", event.Exact(2).WithKey("new"), kit.SomeEvents(1)...)
			if err != nil || now.Version != 3 || now.Repeated {
				t.Errorf("append under the key of the conflict: %+v, %v", now, err)
			}
			same, err := b.Store.AppendTx(ctx, tx, "s", event.Any.WithKey("new"), kit.SomeEvents(1)...)
			if err != nil || !same.Repeated || same.Version != 3 {
				t.Errorf("repeat within one transaction: %+v, %v", same, err)
			}
			return nil
		}))
		if events, rows := len(b.All(b.Store)), len(b.Positions("p")); events != 3 || rows != 1 {
			t.Errorf("%d events, %d rows", events, rows)
		}
	})
}
