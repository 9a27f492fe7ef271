package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
)

func TestTransactionThatFailsLeavesNothingAndWakesNoProjection(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	type inTx = func(ctx context.Context, tx *sql.Tx) error
	statements := func(list ...string) inTx {
		return func(ctx context.Context, tx *sql.Tx) error {
			for _, statement := range list {
				_, _ = tx.ExecContext(ctx, statement)
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		fail inTx
		want error
	}{
		"error":          {func(context.Context, *sql.Tx) error { return boom }, boom},
		"panic":          {func(context.Context, *sql.Tx) error { panic(boom) }, boom},
		"commit":         {func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }, ErrTxControl},
		"commit, hidden": {func(_ context.Context, tx *sql.Tx) error { _ = tx.Commit(); return nil }, ErrTxControl},
		"rollback":       {func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }, ErrTxControl},
		"commit by SQL": {func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "/* */ COMMIT")
			return err
		}, ErrTxControl},
		"commit by SQL, hidden": {statements("commit", "insert into t values (2)"), ErrTxControl},
		"commit within a script": {
			statements("insert into t values (3); end; begin; insert into t values (4)"), ErrTxControl,
		},
		"commit by a prepared statement": {prepared("commit"), ErrTxControl},
		"rollback by SQL":                {statements("rollback", "insert into t values (2)"), ErrTxControl},
		"rollback and another transaction": {
			statements("rollback", "begin", "insert into t values (2)"), ErrTxControl,
		},
		"rollback by a constraint": {
			statements("insert or rollback into t values (1)", "insert into t values (2)"), ErrTxControl,
		},
		"version of the schema":                 {statements("pragma user_version = 77"), ErrTxControl},
		"application id":                        {statements("pragma application_id = 77"), ErrTxControl},
		"context that ended":                    {nil, context.Canceled},
		"release of a savepoint that is not it": {statements("savepoint a", "release a", "rollback"), ErrTxControl},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			mustExec(t, store, "create table t (n int unique)")
			mustExec(t, store, "insert into t values (1)")
			wakes := wakeCount(t, store)
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			err := func() (err error) {
				defer func() {
					if p := recover(); p != nil {
						err = p.(error)
					}
				}()
				return store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					if _, err := store.AppendTx(ctx, tx, "s", event.Any.WithKey("k"), someEvents(3)...); err != nil {
						return err
					}
					if c.fail == nil {
						cancel()
						return nil
					}
					return c.fail(ctx, tx)
				})
			}()
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if n, m := len(all(t, store.tenant)), one[int](t, store, "select count(*) from t"); n != 0 || m != 1 ||
				wakes("default") != 0 {
				t.Errorf("%d events, %d rows, %d wakes", n, m, wakes("default"))
			}
			if r := mustAppend(t, store.tenant, "s", event.NoStream.WithKey("k"), someEvents(1)...); r.Repeated ||
				r.Positions[0] != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// prepared executes a statement by a prepared one.
func prepared(statement string) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		stmt, err := tx.PrepareContext(ctx, statement)
		if err != nil {
			return err
		}
		defer func() { _ = stmt.Close() }()
		_, _ = stmt.ExecContext(ctx)
		return nil
	}
}

func TestNothingOfATransactionLeaksToTheNextOne(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustExec(t, store, "create table t (n int check (n > 0))")
	for _, statement := range []string{
		"PRAGMA ignore_check_constraints = 1", "create temp table t (n int)", "pragma locking_mode = exclusive",
		"create temporary trigger x before insert on main.t begin select raise(ignore); end",
	} {
		noError(t, store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}))
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
		err := store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "insert into t values (0)")
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "CHECK") {
			t.Errorf("%s: a check is not made: %v", statement, err)
		}
		// Another process can still write.
		mustAppend(t, openStore(t, store.path, Options{}).tenant, "s", event.Any, someEvents(1)...)
	}
}

// Control: if the connection stays, changes leak, and the checks notice them.
func TestConnectionThatStaysKeepsWhatTransactionsLeft(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustExec(t, store,
		"create temp trigger x after insert on main.millrace_events begin select raise(abort, 'leaked'); end")
	if _, err := store.Append(testContext(t), "s", event.Any, someEvents(1)...); err == nil ||
		!strings.Contains(err.Error(), "leaked") {
		t.Errorf("error %v", err)
	}
}

func TestAppendWithinATransactionFailsAtOnce(t *testing.T) {
	t.Parallel()
	store, another := newStore(t), newStore(t)
	noError(t, store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
		_, err := store.Append(ctx, "s", event.Any, someEvents(1)...)
		nested := store.InTx(ctx, func(context.Context, *sql.Tx) error { return nil })
		created := store.CreateTenants(ctx, "a")
		for what, err := range map[string]error{"append": err, "transaction": nested, "tenant": created} {
			if !errors.Is(err, ErrWithinTx) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := another.Append(ctx, "s", event.Any, someEvents(1)...); err != nil {
			t.Errorf("append to another store: %v", err)
		}
		if events := collect(t, store.ReadAll(ctx, event.ReadOptions{})); len(events) != 0 {
			t.Errorf("%d events", len(events))
		}
		return nil
	}))
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
}

func TestReadersCannotWrite(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	if _, err := store.DB().ExecContext(testContext(t), "delete from millrace_tenants"); err == nil ||
		!strings.Contains(err.Error(), "readonly") {
		t.Errorf("error %v", err)
	}
}

// long is a query that takes seconds.
const long = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000000) select count(*) from n"

func TestEveryStatementEndsWithItsTransaction(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"exec without a context": func(_ context.Context, tx *sql.Tx) error {
			_, err := tx.Exec(long)
			return err
		},
		"query without a context": func(_ context.Context, tx *sql.Tx) error {
			var n int
			return tx.QueryRow(long).Scan(&n)
		},
		"exec with the context": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, long)
			return err
		},
		"query with another context": func(_ context.Context, tx *sql.Tx) error {
			another, cancel := context.WithCancel(context.Background())
			defer cancel()
			var n int
			return tx.QueryRowContext(another, long).Scan(&n)
		},
		"prepared statement": func(_ context.Context, tx *sql.Tx) error {
			stmt, err := tx.Prepare(long)
			if err != nil {
				return err
			}
			defer func() { _ = stmt.Close() }()
			_, err = stmt.Exec()
			return err
		},
		"prepared query": func(_ context.Context, tx *sql.Tx) error {
			stmt, err := tx.Prepare(long)
			if err != nil {
				return err
			}
			defer func() { _ = stmt.Close() }()
			var n int
			return stmt.QueryRow().Scan(&n)
		},
		"statement that writes": func(_ context.Context, tx *sql.Tx) error {
			_, err := tx.Exec("insert into t " + long)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			mustExec(t, store, "create table t (n int)")
			ctx, cancel := context.WithTimeoutCause(testContext(t), 100*time.Millisecond, errors.New("the limit"))
			defer cancel()
			err := store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.Exec("insert into t values (1)"); err != nil {
					return err
				}
				err := run(ctx, tx)
				if err == nil {
					t.Error("the statement came to its own end")
				}
				return err
			})
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			if ctx.Err() == nil {
				t.Error("the transaction ended before its context")
			}
			// The next transaction is not interrupted.
			mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
			if n := one[int](t, store, "select count(*) from t"); n != 0 {
				t.Errorf("%d rows", n)
			}
		})
	}
}

// A statement may have less time than its transaction. What it wrote is undone with the transaction.
func TestStatementMayEndBeforeItsTransaction(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustExec(t, store, "create table t (n int)")
	noError(t, store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if _, err := tx.ExecContext(short, long); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		_, err := tx.Exec("insert into t values (1)")
		return err
	}))
	err := store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
		_ = shortWrite(ctx, tx, "t")
		_, _ = tx.Exec("insert into t values (2)")
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "SQLite rolled back") {
		t.Errorf("a transaction that SQLite rolled back: %v", err)
	}
	if n := one[int](t, store, "select count(*) from t"); n != 1 {
		t.Errorf("%d rows", n)
	}
}
