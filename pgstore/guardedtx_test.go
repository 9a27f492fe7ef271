package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// kept is what a function may keep of a transaction that was lent to it.
type kept struct{ tx, savepoint pgx.Tx }

func (k *kept) take(ctx context.Context, tx pgx.Tx) (err error) {
	k.tx = tx
	k.savepoint, err = tx.Begin(ctx)
	return err
}

// uses are the ways to work with a transaction, each of which writes a row into left.
var uses = map[string]func(ctx context.Context, tx pgx.Tx) error{
	"Exec": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into public.left_behind values (1)")
		return err
	},
	"Query": func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "insert into public.left_behind values (1) returning i")
		rows.Close()
		return errors.Join(err, rows.Err())
	},
	"QueryRow": func(ctx context.Context, tx pgx.Tx) error {
		var i int
		return tx.QueryRow(ctx, "insert into public.left_behind values (1) returning i").Scan(&i)
	},
	"Prepare": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Prepare(ctx, "left_behind", "insert into public.left_behind values (1)")
		return err
	},
	"CopyFrom": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"public", "left_behind"}, []string{"i"},
			pgx.CopyFromRows([][]any{{1}}))
		return err
	},
	"SendBatch": func(ctx context.Context, tx pgx.Tx) error {
		var batch pgx.Batch
		batch.Queue("insert into public.left_behind values (1)")
		return tx.SendBatch(ctx, &batch).Close()
	},
	"Begin": func(ctx context.Context, tx pgx.Tx) error {
		nested, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		return nested.Commit(ctx)
	},
}

// mustBeClosed uses the kept transaction while its connection is idle, and while the connection is in other use.
func (k *kept) mustBeClosed(t *testing.T, store *Store) {
	t.Helper()
	ctx := testContext(t)
	if k.tx == nil || k.savepoint == nil {
		t.Fatal("nothing was kept")
	}
	use := func(when string) {
		for _, tx := range []struct {
			name string
			tx   pgx.Tx
		}{{"transaction", k.tx}, {"savepoint", k.savepoint}} {
			for name, fn := range uses {
				if err := fn(ctx, tx.tx); !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("%s, %s of the %s that was kept: %v", when, name, tx.name, err)
				}
			}
		}
		for name, end := range map[string]func(context.Context) error{"Commit": k.savepoint.Commit,
			"Rollback": k.savepoint.Rollback} {
			if err := end(ctx); !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s, %s of the savepoint that was kept: %v", when, name, err)
			}
		}
	}
	use("afterwards")
	other := must(store.pool.Begin(ctx))(t)
	use("in another transaction")
	if err := other.Commit(ctx); err != nil {
		t.Errorf("the other transaction was disturbed: %v", err)
	}
	if n := one[int](t, store, "select count(*) from public.left_behind"); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

func withLeftBehind(t *testing.T) *Store {
	t.Helper()
	store := onePool(t)
	mustExec(t, store, "create table public.left_behind (i int)")
	return store
}

func TestTransactionOfABatchIsClosedAfterItsHandler(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"committed": nil, "rolled back": errors.New("on purpose")} {
		t.Run(name, func(t *testing.T) {
			store := withLeftBehind(t)
			var k kept
			err := claimAs(t, store, projection.DefaultTenant).apply(func(ctx context.Context,
				tx pgx.Tx, _ []event.Envelope) error {
				return errors.Join(k.take(ctx, tx), result)
			}, engine.ApplyOptions{})
			if !errors.Is(err, result) {
				t.Fatal(err)
			}
			k.mustBeClosed(t, store)
		})
	}
}

func TestTransactionOfAnAbandonedHandlerIsClosed(t *testing.T) {
	t.Parallel()
	store := withLeftBehind(t)
	var k kept
	let, left := make(chan struct{}), make(chan struct{})
	err := claimAs(t, store, projection.DefaultTenant).apply(func(ctx context.Context,
		tx pgx.Tx, _ []event.Envelope) error {
		defer close(left)
		err := k.take(ctx, tx)
		<-let
		return err
	}, engine.ApplyOptions{Timeout: 50 * time.Millisecond})
	if !errors.Is(err, projection.ErrAbandoned) {
		t.Fatal(err)
	}
	close(let)
	<-left
	k.mustBeClosed(t, store)
}

func TestTransactionOfInTxIsClosedAfterItsFunction(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"committed": nil, "rolled back": errors.New("on purpose")} {
		t.Run(name, func(t *testing.T) {
			store := withLeftBehind(t)
			var k kept
			err := store.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
				return errors.Join(k.take(ctx, tx), result)
			})
			if !errors.Is(err, result) {
				t.Fatal(err)
			}
			k.mustBeClosed(t, store)
		})
	}
}

// The commit may take its time, and the connection is its own meanwhile.
func TestTransactionOfInTxIsClosedWhileItCommits(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustExec(t, store, "create table public.left_behind (i int)")
	mustExec(t, store,
		"create function public.waits() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(4711); return null; end $$")
	mustExec(t, store,
		"create constraint trigger waits after insert on public.left_behind deferrable initially deferred for each row execute function public.waits()")
	other := openTx(t, store)
	execIn(t, other, "select pg_advisory_xact_lock(4711)")
	var k kept
	taken, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- store.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
			defer close(taken)
			return errors.Join(uses["Exec"](ctx, tx), k.take(ctx, tx))
		})
	}()
	<-taken
	waitBlocked(t, store, 1)
	for name, tx := range map[string]pgx.Tx{"transaction": k.tx, "savepoint": k.savepoint} {
		if err := uses["Exec"](testContext(t), tx); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	rollback(t, other)
	noError(t, <-ended)
	if n := one[int](t, store, "select count(*) from public.left_behind"); n != 1 {
		t.Errorf("%d rows were written", n)
	}
}

func TestTransactionOfInTxIsClosedAfterAPanic(t *testing.T) {
	t.Parallel()
	store := withLeftBehind(t)
	var k kept
	func() {
		defer func() { _ = recover() }()
		_ = store.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
			if err := k.take(ctx, tx); err != nil {
				return err
			}
			panic("on purpose")
		})
	}()
	k.mustBeClosed(t, store)
}

// The methods of pgx.Tx are listed, so that a new one is noticed here.
func TestEveryMethodOfATransactionIsTested(t *testing.T) {
	t.Parallel()
	store := withLeftBehind(t)
	noError(t, store.InTx(testContext(t), func(ctx context.Context, tx pgx.Tx) error {
		for name, fn := range uses {
			if err := fn(ctx, tx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	}))
	if n := one[int](t, store, "select count(*) from public.left_behind"); n != 5 {
		t.Errorf("%d rows were written", n)
	}
}
