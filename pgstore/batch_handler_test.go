package pgstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/projection"
)

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
		wantClass(t, err, engine.HandlerFault)
		if !errors.Is(err, ErrTxControl) || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one that says %q", err, name)
		}
		o.untouched()
	}
	if err := o.apply(write, engine.ApplyOptions{}); err != nil {
		t.Error(err)
	}
	o.applied(2)
}

func sends(sql string) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
}

// sendsRaw sends text behind the back of the transaction that the handler was given.
func sendsRaw(sql string) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		return tx.Conn().PgConn().Exec(ctx, sql).Close()
	}
}

func TestTransactionEndedBehindTheBatchIsNoticed(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"rollback", "commit", "rollback; begin", "commit; begin", "commit and chain", "commit; begin; savepoint a",
	} {
		o := newOwner(t, 1)
		err := o.apply(writeAnd(sendsRaw(sql)), engine.ApplyOptions{})
		wantClass(t, err, engine.HandlerFault)
		if !errors.Is(err, ErrBatchEnded) {
			t.Errorf("%s: %v", sql, err)
		}
		// What the handler committed by itself stays, but it does not count.
		if o.checkpoint() != o.lease.Checkpoint {
			t.Errorf("%s: the checkpoint moved", sql)
		}
		mustExec(t, o.store, "truncate public.model")
		if err := o.apply(write, engine.ApplyOptions{}); err != nil {
			t.Errorf("%s: the next batch: %v", sql, err)
		}
		o.applied(1)
	}
}

func TestSwallowedErrorOfAStatementIsNoticed(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	err := o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, "select 1/0")
		return nil
	}), engine.ApplyOptions{})
	wantClass(t, err, engine.HandlerFault)
	if errors.Is(err, ErrBatchEnded) || !strings.Contains(err.Error(), "returned no error") {
		t.Error(err)
	}
	o.untouched()
}

func TestSavepointsOfAHandlerWork(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	err := o.apply(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
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
	}, engine.ApplyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.applied(3)
}

func TestHandlerThatEndsItsGoroutineFails(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	err := o.apply(writeAnd(func(context.Context, pgx.Tx) error {
		runtime.Goexit()
		return nil
	}), engine.ApplyOptions{})
	wantClass(t, err, engine.HandlerFault)
	if !errors.Is(err, usercode.ErrGoexit) {
		t.Error(err)
	}
	o.untouched()
}

func TestPanicIsAnErrorWithItsStack(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	events := must(o.pending())(t)
	inside := errors.New("inside")
	for _, value := range []any{"a text", 42, inside, fmt.Errorf("around: %w", inside), nil} {
		fails := func(context.Context, pgx.Tx) error { panic(value) }
		one := Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
			if e.Position == events[1].Position {
				return fails(ctx, tx)
			}
			return write(ctx, tx, []event.Envelope{e})
		})
		each := func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
			return one.handler.Apply(ctx, tx, events)
		}
		for position, handler := range map[int64]batchFunc{0: writeAnd(fails), events[1].Position: each} {
			err := o.apply(handler, engine.ApplyOptions{})
			fault := wantClass(t, err, engine.HandlerFault)
			if !errors.Is(err, projection.ErrHandlerPanic) || value != nil && !strings.Contains(err.Error(), fmt.Sprint(value)) {
				t.Errorf("panic with %v: %v", value, err)
			}
			if cause, ok := value.(error); ok && !errors.Is(err, cause) {
				t.Errorf("panic with %v: %v hides it", value, err)
			}
			if !strings.Contains(fault.Stack, "batch_handler_test.go") || fault.Position != position {
				t.Errorf("panic with %v: at %d, want %d, stack %q", value, fault.Position, position, fault.Stack)
			}
			o.untouched()
		}
	}
}
