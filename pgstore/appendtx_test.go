package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
)

func TestAppendTxIsVisibleAndWakesAfterTheCommit(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	wakes := wakeCount(t, store)
	tx := must(store.pool.Begin(ctx))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	result, wake, err := store.AppendTx(ctx, tx, "s", event.NoStream, someEvents(2)...)
	if err != nil || result.Version != 2 || len(result.Positions) != 2 {
		t.Fatalf("%+v, %v", result, err)
	}
	if countEvents(t, store.tenant) != 0 || wakes("default") != 0 {
		t.Error("events are visible, or told of, before the commit")
	}
	noError(t, tx.Commit(ctx))
	wake()
	if countEvents(t, store.tenant) != 2 || wakes("default") != 1 {
		t.Errorf("%d events, %d wakes", countEvents(t, store.tenant), wakes("default"))
	}
}

func TestConflictLeavesTheCallersTransactionUsable(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	err := store.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
		_, wake, err := store.AppendTx(ctx, tx, "s", event.NoStream, someEvents(1)...)
		if !errors.Is(err, event.ErrVersionConflict) {
			t.Errorf("error %v", err)
		}
		wake()
		_, _, err = store.AppendTx(ctx, tx, "s", event.Exact(1), someEvents(1)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := countEvents(t, store.tenant); n != 2 {
		t.Errorf("%d events", n)
	}
}

func TestInTxCommitsAndWakesEveryTenantAppendedTo(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	a, b, c := newTenant(t, store, "a"), newTenant(t, store, "b"), newTenant(t, store, "c")
	wakes := wakeCount(t, store)
	err := store.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
		if _, _, err := a.AppendTx(ctx, tx, "s", event.Any, someEvents(1)...); err != nil {
			return err
		}
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if _, _, err := b.AppendTx(ctx, savepoint, "s", event.Any, someEvents(1)...); err != nil {
			return err
		}
		if err := savepoint.Commit(ctx); err != nil {
			return err
		}
		_, _, err = c.AppendTx(ctx, tx, "s", event.Exact(1), someEvents(1)...)
		if !errors.Is(err, event.ErrVersionConflict) {
			return err
		}
		if wakes("a")+wakes("b") != 0 {
			t.Error("woken before the commit")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if wakes("a") != 1 || wakes("b") != 1 || wakes("c") != 0 || wakes("default") != 0 {
		t.Errorf("wakes: a %d, b %d, c %d, default %d", wakes("a"), wakes("b"), wakes("c"), wakes("default"))
	}
	if countEvents(t, a) != 1 || countEvents(t, b) != 1 || countEvents(t, c) != 0 {
		t.Error("not what was appended")
	}
}

func TestInTxThatFailsLeavesNothingAndWakesNobody(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, fail := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"error": func(context.Context, pgx.Tx) error { return boom },
		"panic": func(context.Context, pgx.Tx) error { panic(boom) },
		"statement that failed and was passed over": func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "select 1/0")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			wakes := wakeCount(t, store)
			err := func() (err error) {
				defer func() {
					if p := recover(); p != nil {
						err = p.(error)
					}
				}()
				return store.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
					if _, _, err := store.AppendTx(ctx, tx, "s", event.Any.WithKey("k"), someEvents(3)...); err != nil {
						return err
					}
					return fail(ctx, tx)
				})
			}()
			if err == nil || name != "statement that failed and was passed over" && !errors.Is(err, boom) {
				t.Errorf("error %v", err)
			}
			if n := countEvents(t, store.tenant); n != 0 {
				t.Errorf("%d events", n)
			}
			if wakes("default") != 0 {
				t.Errorf("%d wakes", wakes("default"))
			}
			if acquired := store.pool.Stat().AcquiredConns(); acquired != 0 {
				t.Errorf("%d connections are not given back", acquired)
			}
			if r := mustAppend(t, store.tenant, "s", event.NoStream.WithKey("k"), someEvents(1)...); r.Repeated {
				t.Error("the key is claimed")
			}
		})
	}
}

func TestInTxCannotBeEndedByItsFunction(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for name, end := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"commit":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"rollback": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	} {
		if err := store.InTx(testContext(t), end); !errors.Is(err, ErrTxControl) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestAppendTxMakesTheCommitSynchronousAgain(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	setting := func(tx pgx.Tx) (s string) {
		t.Helper()
		noError(t, tx.QueryRow(ctx, "show synchronous_commit").Scan(&s))
		return s
	}
	for _, c := range []struct {
		before   string
		expected event.Expected
		want     string
	}{
		{"off", event.Any, "on"}, {"off", event.NoStream.WithKey("keyed"), "on"}, {"local", event.Any, "local"}, {"remote_apply", event.Any, "remote_apply"},
	} {
		err := store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "set local synchronous_commit = "+c.before); err != nil {
				return err
			}
			key, _ := c.expected.Key()
			stream := strings.Join([]string{c.before, key}, "-")
			if _, _, err := store.AppendTx(ctx, tx, stream, c.expected, someEvents(1)...); err != nil {
				return err
			}
			if got := setting(tx); got != c.want {
				t.Errorf("synchronous_commit was %s and is %s after an append, want %s", c.before, got, c.want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Control: a transaction that appends nothing stays as it was set.
	err := store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local synchronous_commit = off"); err != nil {
			return err
		}
		if _, _, err := store.AppendTx(ctx, tx, "s", event.Exact(7), someEvents(1)...); !errors.Is(err, event.ErrVersionConflict) {
			return err
		}
		if got := setting(tx); got != "off" {
			t.Errorf("synchronous_commit is %s though nothing was appended", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
