package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
)

// steps is a query whose second row takes hours.
const steps = `select 1 union all select sum(i) from (with recursive n(i) as (select 1 union all select i + 1 from n where i < 1e12) select i from n)`

// short is the timeout of handlers that meet it.
const short = 200 * time.Millisecond

// A handler that hangs in SQLite is interrupted, whatever context its statement has.
func TestHandlerThatHangsInAStatementIsInterrupted(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"exec": func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, steps); return err },
		"exec without a context": func(_ context.Context, tx *sql.Tx) error {
			_, err := tx.Exec(steps)
			return err
		},
		"exec that writes": func(_ context.Context, tx *sql.Tx) error {
			_, err := tx.Exec("insert into model (position) " + steps)
			return err
		},
		"later row": func(_ context.Context, tx *sql.Tx) error {
			rows, err := tx.Query(steps)
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
			}
			return rows.Err()
		},
		"later row of a prepared query": func(ctx context.Context, tx *sql.Tx) error {
			stmt, err := tx.Prepare(steps)
			if err != nil {
				return err
			}
			rows, err := stmt.Query()
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
			}
			return rows.Err()
		},
		"swallowed": func(_ context.Context, tx *sql.Tx) error { _, _ = tx.Exec(steps); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBatcher(t, 3)
			err := b.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
				return errors.Join(record(ctx, tx, events), hang(ctx, tx))
			}, short)
			if fault := faultOf(t, err); fault.Class != faults.Handler || !errors.Is(err, projection.ErrTimeout) ||
				errors.Is(err, projection.ErrAbandoned) {
				t.Errorf("%+v", fault)
			}
			if n := b.store.port().Abandoned(); n != 0 {
				t.Errorf("%d abandoned", n)
			}
			b.holds(0, 0)
			noError(t, b.apply(record, limit))
			b.holds(3, 3)
		})
	}
}

// A handler that returns soon after its timeout, and whose statements were not cut off, has done its work.
func TestHandlerThatReturnsSoonAfterItsTimeoutCommits(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 3)
	noError(t, b.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		if err := record(ctx, tx, events); err != nil {
			return err
		}
		if _, err := tx.Query("select * from model"); err != nil { // rows that it leaves open
			return err
		}
		<-ctx.Done()
		return nil
	}, short))
	b.holds(3, 3)
	mustAppend(t, b.store.tenant, "s", event.Any, someEvents(1)...)
	err := b.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		<-ctx.Done()
		_, err := tx.Exec("insert into model (position) values (4)")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a statement after the timeout: %v", err)
		}
		return err
	}, short)
	if fault := faultOf(t, err); fault.Class != faults.Handler || !errors.Is(err, projection.ErrTimeout) {
		t.Errorf("%+v", fault)
	}
	b.holds(3, 3)
}

func TestBatchThatIsCancelledIsNotItsHandlersFault(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 3)
	ctx, cancel := context.WithCancelCause(testContext(t))
	why := errors.New("the node stops")
	err := b.run(ctx, b.pending(10), func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
		cancel(why)
		_, err := tx.Exec(steps)
		return err
	}, limit)
	if fault := faultOf(t, err); fault.Class != faults.Infrastructure || !errors.Is(err, why) {
		t.Errorf("%+v", fault)
	}
	err = b.run(ctx, engine.Batch{To: 3}, record, limit)
	if fault := faultOf(t, err); fault.Class != faults.Infrastructure || !errors.Is(err, why) {
		t.Errorf("%+v", fault)
	}
	b.holds(0, 0)
}

// abandonment is a handler that does not return until release is closed. Then it does what it can with its transaction.
type abandonment struct {
	release chan struct{}
	// used has the errors of the uses after release.
	used chan []error
}

func newAbandonment() *abandonment {
	return &abandonment{make(chan struct{}), make(chan []error, 1)}
}

// hang hangs, and uses the transaction later.
func (a *abandonment) hang(tx *sql.Tx, stmt *sql.Stmt) error {
	<-a.release
	_, exec := tx.Exec("insert into model (position) values (77)")
	_, stored := tx.Exec(queries.Text("advance"), 1, "node-1", 3, 0, 77)
	_, prepared := stmt.Exec()
	_, preparing := tx.Prepare("insert into model (position) values (79)")
	_, script := tx.Exec("rollback; insert into model (position) values (80)")
	a.used <- []error{exec, stored, prepared, preparing, script, tx.Commit(), tx.Rollback()}
	return nil
}

func TestHandlerThatDoesNotReturnIsAbandoned(t *testing.T) {
	t.Parallel()
	prepare := func(tx *sql.Tx) *sql.Stmt {
		stmt, err := tx.Prepare("insert into model (position) values (78)")
		if err != nil {
			t.Error(err)
		}
		return stmt
	}
	for name, hang := range map[string]func(a *abandonment, tx *sql.Tx) error{
		"in Go": func(a *abandonment, tx *sql.Tx) error { return a.hang(tx, prepare(tx)) },
		"with open rows": func(a *abandonment, tx *sql.Tx) error {
			rows, err := tx.Query("select position from model")
			if err != nil || !rows.Next() {
				t.Error(err)
			}
			defer func() {
				if rows.Next() {
					t.Error("another row")
				}
				_ = rows.Close()
			}()
			return a.hang(tx, prepare(tx))
		},
		"with raw bytes": func(a *abandonment, tx *sql.Tx) error {
			rows, err := tx.Query("select position from model")
			var raw sql.RawBytes
			if err != nil || !rows.Next() || rows.Scan(&raw) != nil {
				t.Error(err)
			}
			stmt := prepare(tx)
			<-a.release
			// database/sql waits for these rows, and would not let a statement pass.
			_ = rows.Close()
			return a.hang(tx, stmt)
		},
		"in a loop of statements": func(a *abandonment, tx *sql.Tx) error {
			for stmt := prepare(tx); ; {
				select {
				case <-a.release:
					return a.hang(tx, stmt)
				default:
					_, _ = tx.Exec("insert into model (position) values (81)")
					_, _ = tx.Exec(steps)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBatcher(t, 3)
			a := newAbandonment()
			err := b.apply(func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
				return errors.Join(record(ctx, tx, events), hang(a, tx))
			}, short)
			if fault := faultOf(t, err); fault.Class != faults.Handler || !errors.Is(err, projection.ErrTimeout) ||
				!errors.Is(err, projection.ErrAbandoned) {
				t.Errorf("%+v", fault)
			}
			if n := b.store.port().Abandoned(); n != 1 {
				t.Errorf("%d abandoned", n)
			}
			// Others continue at once.
			mustAppend(t, b.store.tenant, "s", event.Any, someEvents(2)...)
			b.holds(0, 0)
			noError(t, b.apply(record, limit))
			b.holds(5, 5)
			close(a.release)
			for i, err := range <-a.used {
				if err == nil {
					t.Errorf("use %d of the transaction succeeded", i)
				}
			}
			mustAppend(t, b.store.tenant, "s", event.Any, someEvents(1)...)
			noError(t, b.apply(record, limit))
			b.holds(6, 6)
			until(t, "the abandoned connection is closed",
				func() bool { return b.store.writer.db.Stats().OpenConnections == 1 })
		})
	}
}

// A function that SQLite calls cannot be interrupted. Until it returns, the file waits, and nothing of the batch is
// kept.
func TestFileWaitsForAnAbandonedFunctionOfSQLite(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 3)
	release := make(chan struct{})
	name := fmt.Sprintf("hang_%d", time.Now().UnixNano())
	noError(t, sqlite.RegisterScalarFunction(name,
		0, func(*sqlite.FunctionContext, []driverValue) (driverValue, error) {
			<-release
			return int64(1), nil
		}))
	// A connection has only the functions that were registered before it was opened.
	b.store.refresh(t)
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() {
		done <- b.run(ctx, b.pending(10), func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
			_, err := tx.ExecContext(ctx, "insert into model (position) select "+name+"()")
			return err
		}, short)
	}()
	until(t, "the handler is abandoned", func() bool { return b.store.port().Abandoned() == 1 })
	waiting, stop := context.WithTimeout(testContext(t), short)
	defer stop()
	if _, err := b.store.Append(waiting, "s", event.Any, someEvents(1)...); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an append while the function runs: %v", err)
	}
	close(release)
	if err := <-done; !errors.Is(err, projection.ErrAbandoned) {
		t.Errorf("error %v", err)
	}
	cancel()
	mustAppend(t, b.store.tenant, "s", event.Any, someEvents(1)...)
	b.holds(0, 0)
}

// Goroutines that a handler left behind cannot use its transaction, also while it is being committed.
func TestGoroutinesOfAHandlerCannotUseItsTransactionLater(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 40)
	for round := range 40 {
		left := make(chan []error, 3)
		begun := make(chan struct{}, 3)
		noError(t, b.run(testContext(t), b.pending(1),
			func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
				for _, use := range []func() error{
					func() error { _, err := tx.Exec("insert into model (position) values (1000)"); return err },
					func() error {
						_, err := b.store.AppendTx(context.Background(), tx, "left", event.Any, someEvents(1)...)
						return err
					},
					func() error {
						if round%2 == 0 {
							return errors.New("not in this round")
						}
						return tx.QueryRow(long).Scan(new(int))
					},
				} {
					go func() {
						<-ctx.Done() // which the end of the handler's time does
						begun <- struct{}{}
						var errs []error
						for range 100 {
							errs = append(errs, use())
						}
						left <- errs
					}()
				}
				return record(ctx, tx, events)
			}, limit))
		for range 3 {
			for _, err := range <-left {
				if err == nil {
					t.Fatal("the transaction was used")
				}
			}
		}
	}
	b.holds(40, 40)
	if n := len(all(t, b.store.tenant)); n != 40 {
		t.Errorf("%d events", n)
	}
}

// A goroutine that ends the transaction while it is being committed makes it fail, and never commits half of it.
func TestGoroutineThatEndsTheTransactionCommitsNoHalfOfIt(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 60)
	failures := 0
	for b.lease.Checkpoint < 60 && failures < 600 {
		ended := make(chan struct{})
		called := false
		err := b.run(testContext(t), b.pending(1),
			func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
				called = true
				go func() {
					defer close(ended)
					<-ctx.Done()
					if failures%2 == 0 {
						_ = tx.Commit()
					} else {
						_ = tx.Rollback()
					}
				}()
				return record(ctx, tx, events)
			}, limit)
		if !called {
			t.Fatal(err)
		}
		<-ended
		if err != nil {
			failures++
			if fault := faultOf(t, err); fault.Class != faults.Handler || !errors.Is(err, ErrTxControl) {
				t.Fatalf("%+v", fault)
			}
		}
		b.holds(int(b.lease.Checkpoint), b.lease.Checkpoint)
	}
	t.Logf("%d batches failed", failures)
}

// A commit of the handler's may have passed database/sql, and run only when the batch is over.
func TestTransactionThatWasLentIsNotCommittedLater(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 1)
	ctx := testContext(t)
	tx := must(b.store.writer.open(ctx, 0))(t)
	tx.lend(ctx)
	_, err := tx.ExecContext(ctx, "insert into model (position) values (1)")
	noError(t, err)
	tx.takeBack(ctx)
	noError(t, tx.onConn(func(c *conn) error {
		c.loan.end()
		if err := c.loan.tx.Commit(); !errors.Is(err, ErrTxControl) {
			t.Errorf("error %v", err)
		}
		return nil
	}))
	tx.end()
	b.holds(0, 0)
	noError(t, b.apply(record, limit))
	b.holds(1, 1)
}

// Opening a connection takes as long as many batches.
func TestBatchesShareOneConnection(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 200)
	for range 200 {
		noError(t, b.run(testContext(t), b.pending(1), record, limit))
	}
	if stats := b.store.writer.db.Stats(); stats.OpenConnections != 1 || stats.MaxIdleClosed != 0 {
		t.Errorf("%+v", stats)
	}
	session := must(b.store.writer.db.Conn(testContext(t)))(t)
	defer func() { noError(t, session.Close()) }()
	noError(t, session.Raw(func(c any) error {
		if batches := c.(*conn).loan.lends; batches != 200 {
			t.Errorf("the connection was lent to %d of 200 batches", batches)
		}
		return nil
	}))
}

func TestFreshBatchHasAConnectionThatNoHandlerHad(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 1)
	connection := func(fresh bool) (found *conn) {
		batch := engine.Batch{Fresh: fresh, To: b.lease.Checkpoint, Events: []event.Envelope{{Position: 1}}}
		noError(t, b.run(testContext(t), batch, func(context.Context, *sql.Tx, []event.Envelope) error { return nil },
			limit))
		session := must(b.store.writer.db.Conn(testContext(t)))(t)
		noError(t, session.Raw(func(c any) error { found = c.(*conn); return nil }))
		noError(t, session.Close())
		return found
	}
	first := connection(false)
	if connection(false) != first {
		t.Error("another connection for a batch that is not fresh")
	}
	if connection(true) == first {
		t.Error("the same connection for a fresh batch")
	}
}
