package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/projection"
)

// A fault that the handler dealt with by a savepoint says nothing about an error that comes later.
func TestFaultThatASavepointUndidIsForgotten(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	raise := sends("do $$ begin raise exception 'none' using errcode = '55P03'; end $$")
	for name, undo := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"nested": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return raise(ctx, tx) })
		},
		"by text": func(ctx context.Context, tx pgx.Tx) error {
			_ = sends("savepoint a")(ctx, tx)
			err := raise(ctx, tx)
			_ = sends("rollback to a")(ctx, tx)
			return err
		},
	} {
		err := o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
			if err := undo(ctx, tx); !pgerr.Is(err, "55P03") {
				t.Errorf("%s: %v", name, err)
			}
			return errors.New("another error")
		}), engine.ApplyOptions{})
		wantClass(t, err, faults.Handler)
		// The control: without the savepoint it is the infrastructure's, even if the handler says something else.
		err = o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
			_ = raise(ctx, tx)
			return errors.New("another error")
		}), engine.ApplyOptions{})
		wantClass(t, err, faults.Infrastructure)
	}
	o.untouched()
}

func TestMisusedConnectionIsTheHandlersFault(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 2)
	rows := func(ctx context.Context, tx pgx.Tx) (pgx.Rows, error) {
		rows, err := tx.Query(ctx, "select generate_series(1, 10)")
		rows.Next()
		return rows, err
	}
	for name, misuse := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"rows left open": func(ctx context.Context, tx pgx.Tx) error {
			_, err := rows(ctx, tx)
			return err
		},
		"statement while rows are open": func(ctx context.Context, tx pgx.Tx) error {
			open, err := rows(ctx, tx)
			if err != nil {
				return err
			}
			defer open.Close()
			return sends("select 1")(ctx, tx)
		},
		"savepoint used after its end": func(ctx context.Context, tx pgx.Tx) error {
			nested, err := tx.Begin(ctx)
			return errors.Join(err, nested.Commit(ctx), sends("select 1")(ctx, nested))
		},
		"copy from a source that fails": func(ctx context.Context, tx pgx.Tx) error {
			source := pgx.CopyFromFunc(func() ([]any, error) { return nil, io.ErrUnexpectedEOF })
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"public", "model"}, []string{"position"}, source)
			return err
		},
	} {
		fault := wantClass(t, o.apply(writeAnd(misuse), engine.ApplyOptions{}), faults.Handler)
		if t.Failed() {
			t.Fatalf("%s: %v", name, fault)
		}
		o.untouched()
	}
	noError(t, o.apply(write, engine.ApplyOptions{}))
	o.applied(2)
}

func TestFaultOfAnotherServerIsTheHandlers(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	for _, err := range []error{fmt.Errorf("call: %w", &pgconn.ConnectError{}), ErrNotMigrated} {
		wantClass(t, o.apply(writeAnd(func(context.Context, pgx.Tx) error { return err }), engine.ApplyOptions{}),
			faults.Handler)
	}
	o.untouched()
}

func TestLossOfTheBatchesConnectionIsUnclear(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	conn := strange(t, o.store)
	terminate := func(ctx context.Context, tx pgx.Tx) error {
		_, err := conn.Exec(ctx, "select pg_terminate_backend($1, 10000)", int32(tx.Conn().PgConn().PID()))
		return err
	}
	for name, then := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"passed on": sends("select 1"),
		"swallowed": func(ctx context.Context, tx pgx.Tx) error {
			_ = sends("select 1")(ctx, tx)
			return nil
		},
		"wrapped without %w": func(ctx context.Context, tx pgx.Tx) error {
			return fmt.Errorf("no: %v", sends("select 1")(ctx, tx))
		},
		"panicked with": func(ctx context.Context, tx pgx.Tx) error {
			panic(sends("select 1")(ctx, tx))
		},
		"met by raw means": func(ctx context.Context, tx pgx.Tx) error {
			return fmt.Errorf("no: %v", sendsRaw("select 1")(ctx, tx))
		},
		"met in rows": func(ctx context.Context, tx pgx.Tx) error {
			rows, _ := tx.Query(ctx, "select 1")
			rows.Close()
			return errors.New("no rows")
		},
		"met by the commit": func(context.Context, pgx.Tx) error { return nil },
	} {
		err := o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
			if err := terminate(ctx, tx); err != nil {
				t.Error(err)
			}
			return then(ctx, tx)
		}), engine.ApplyOptions{})
		if fault := classify(err); err == nil || fault.Class != faults.Unclear || !fault.Probe {
			t.Errorf("%s: %v", name, err)
		}
		o.untouched()
	}
}

// The statement cache of a connection may be at fault, so no other batch gets the connection.
func TestInterruptedBatchClosesItsConnectionAndTheNextGetsANewOne(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	pids := make(map[uint32]bool)
	noted := func(then func(ctx context.Context, tx pgx.Tx) error) batchFunc {
		return writeAnd(func(ctx context.Context, tx pgx.Tx) error {
			pids[tx.Conn().PgConn().PID()] = true
			return then(ctx, tx)
		})
	}
	for range 3 {
		fault := wantClass(t, o.apply(noted(sends("set local statement_timeout = 10; select pg_sleep(60)")),
			engine.ApplyOptions{}), faults.Interrupted)
		if !pgerr.Is(fault, "57014") {
			t.Error(fault)
		}
	}
	if len(pids) != 3 {
		t.Errorf("%d connections for three batches", len(pids))
	}
	// Connections that other batches have used are passed over.
	for range 3 {
		wantClass(t, o.apply(noted(sends("select 1/0")), engine.ApplyOptions{}), faults.Handler)
	}
	events := must(o.pending())(t)
	used := len(pids)
	batch := engine.Batch{Events: events, To: events[0].Position, Fresh: true}
	noError(t, o.store.port().apply(noted(sends("select 1")), engine.ApplyOptions{})(testContext(t), o.lease, batch))
	if len(pids) != used+1 {
		t.Error("a batch that asked for a new connection got a used one")
	}
	o.applied(1)
}

func TestErrorThatAHandlerSwallowedIsReported(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	for sql, want := range map[string]struct {
		class faults.Class
		says  string
	}{
		"select 1/0":              {faults.Handler, "ERROR: division by zero (SQLSTATE 22012)"},
		"select from no_such":     {faults.MissingObject, `ERROR: relation "no_such" does not exist (SQLSTATE 42P01)`},
		"select 1/0; select 1":    {faults.Handler, "22012"},
		"savepoint a; select 1/0": {faults.Handler, "22012"},
	} {
		for name, met := range map[string]func(ctx context.Context, tx pgx.Tx) error{
			"at once": sends(sql),
			"after one that was undone": func(ctx context.Context, tx pgx.Tx) error {
				_ = sends("savepoint b")(ctx, tx)
				_ = sends("select * from another")(ctx, tx)
				_ = sends("rollback to b")(ctx, tx)
				return sends(sql)(ctx, tx)
			},
			"before others": func(ctx context.Context, tx pgx.Tx) error {
				return errors.Join(sends(sql)(ctx, tx), sends("select 2")(ctx, tx),
					sends("select from another")(ctx, tx))
			},
		} {
			err := o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
				_ = met(ctx, tx)
				return nil
			}), engine.ApplyOptions{})
			fault := wantClass(t, err, want.class)
			if !strings.Contains(fault.Error(), "returned no error, but a statement of its transaction failed: ") ||
				!strings.Contains(fault.Error(), want.says) {
				t.Errorf("%s, %s: %v", sql, name, fault)
			}
		}
	}
	o.untouched()
}

// A handler returns an error other than that of its statement.
func TestErrorOfAStatementTakesPrecedenceOverThatOfTheHandler(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	for sql, want := range map[string]faults.Class{
		"select from no_such": faults.MissingObject,
		"select 1/0":          faults.Handler,
		"do $$ begin raise exception 'bad input' using errcode = 'XX000'; end $$": faults.Unclear,
		"do $$ begin raise exception 'pretended' using errcode = 'MR001'; end $$": faults.Handler,
		"do $$ begin raise exception 'pretended' using errcode = '3D000'; end $$": faults.Handler,
	} {
		fault := wantClass(t, o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
			_ = sends(sql)(ctx, tx)
			return projection.At(7, errors.New("something else"))
		}), engine.ApplyOptions{}), want)
		if fault.Position != 7 || fault.Probe != (want == faults.Unclear) ||
			!strings.Contains(fault.Error(), "something else") {
			t.Errorf("%s: %+v", sql, fault)
		}
	}
	o.untouched()
}

// A commit that waits for another session's lock, here by a deferred constraint, ends as such a wait.
func TestLockWaitOfACommitIsTheInfrastructures(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	mustExec(t, o.store, "alter table public.model add unique (position) deferrable initially deferred")
	tx := openTx(t, o.store)
	execIn(t, tx, "insert into public.model (position) select global_seq from millrace_default.events")
	fault := wantClass(t, o.apply(write, engine.ApplyOptions{}), faults.Infrastructure)
	if !pgerr.Is(fault, "55P03") {
		t.Error(fault)
	}
	noError(t, tx.Rollback(testContext(t)))
	o.untouched()
}

func TestPreparedStatementsThatPgxKeepsAreAllowed(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	for range 3 {
		wantClass(t, o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Prepare(ctx, "mine", "select $1::int"); err != nil {
				return err
			}
			var n int
			if err := tx.QueryRow(ctx, "mine", 7).Scan(&n); err != nil || n != 7 {
				t.Errorf("%d, %v", n, err)
			}
			return errors.New("so that the batch comes again")
		}), engine.ApplyOptions{}), faults.Handler)
	}
	fault := wantClass(t, o.apply(writeAnd(sends("prepare mine as select 1")), engine.ApplyOptions{}),
		faults.Handler)
	if !errors.Is(fault, ErrTxControl) || !strings.Contains(fault.Error(), "tx.Prepare") {
		t.Error(fault)
	}
}

func TestHandlerCannotEndItsTransaction(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 2)
	for name, end := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"commit refused":              func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"rollback refused":            func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		"COMMIT refused":              sends("commit"),
		"ROLLBACK refused":            sends("/* so */ rollback and chain"),
		"BEGIN refused":               sends("select 1; begin"),
		"PREPARE TRANSACTION refused": sends("prepare transaction 'x'"),
		"SET WORK_MEM refused":        sends("set work_mem = '1MB'"),
		"SET SESSION refused":         sends("set session statement_timeout = 0"),
		"LISTEN refused":              sends("listen x"),
		"END refused": func(ctx context.Context, tx pgx.Tx) error {
			batch := &pgx.Batch{}
			batch.Queue("select 1")
			batch.Queue("end")
			return tx.SendBatch(ctx, batch).Close()
		},
		"set_config refused": func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "select set_config('work_mem', '1MB', false)").Scan(new(string))
		},
		"pg_advisory_lock refused": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "select pg_advisory_lock(1)")
			rows.Close()
			return err
		},
		"ABORT refused": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Prepare(ctx, "a", "abort")
			return err
		},
		"DISCARD refused": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "discard all")
				return err
			})
		},
	} {
		err := o.apply(writeAnd(end), engine.ApplyOptions{})
		wantClass(t, err, faults.Handler)
		if !errors.Is(err, ErrTxControl) || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one that says %q", err, name)
		}
		o.untouched()
	}
	noError(t, o.apply(write, engine.ApplyOptions{}))
	o.applied(2)
}

func sends(sql string) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
}

// sendsRaw sends text over the connection and not through the guarded transaction.
func sendsRaw(sql string) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		return tx.Conn().PgConn().Exec(ctx, sql).Close()
	}
}

func TestTransactionEndedByTheHandlerIsNoticed(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"rollback", "commit", "rollback; begin", "commit; begin", "commit and chain", "commit; begin; savepoint a",
	} {
		o := newOwner(t, 1)
		wantBatchEnded(t, o, sql)
		mustExec(t, o.store, "truncate public.model")
		if err := o.apply(write, engine.ApplyOptions{}); err != nil {
			t.Errorf("%s: the next batch: %v", sql, err)
		}
		o.applied(1)
	}
}

func TestSavepointsOfAHandlerWork(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	noError(t, o.apply(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		bad := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			if err := write(ctx, tx, events); err != nil {
				return err
			}
			return sends("select 1/0")(ctx, tx)
		})
		if !pgerr.Is(bad, "22012") {
			t.Errorf("the savepoint that fails: %v", bad)
		}
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return write(ctx, tx, events) })
		})
	}, engine.ApplyOptions{}))
	o.applied(3)
}

// wantBatchEnded applies a handler that sends sql, which ends the batch's transaction. It fails if the batch does not
// notice, or if the checkpoint moved. What the handler committed by itself stays.
func wantBatchEnded(t *testing.T, o *owner, sql string) {
	t.Helper()
	err := o.apply(writeAnd(sendsRaw(sql)), engine.ApplyOptions{})
	wantClass(t, err, faults.Handler)
	if !errors.Is(err, ErrBatchEnded) {
		t.Errorf("%s: %v", sql, err)
	}
	if o.checkpoint() != o.lease.Checkpoint {
		t.Errorf("%s: the checkpoint moved", sql)
	}
}
