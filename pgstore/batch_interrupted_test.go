package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/projection"
)

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
		fault := wantClass(t, o.apply(noted(sends("set local statement_timeout = 10; select pg_sleep(60)")), engine.ApplyOptions{}), engine.Interrupted)
		if !pgerr.Is(fault, "57014") {
			t.Error(fault)
		}
	}
	if len(pids) != 3 {
		t.Errorf("%d connections for three batches", len(pids))
	}
	// Connections that other batches have used are passed over.
	for range 3 {
		wantClass(t, o.apply(noted(sends("select 1/0")), engine.ApplyOptions{}), engine.HandlerFault)
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
		class engine.Class
		says  string
	}{
		"select 1/0":              {engine.HandlerFault, "ERROR: division by zero (SQLSTATE 22012)"},
		"select from no_such":     {engine.MissingObject, `ERROR: relation "no_such" does not exist (SQLSTATE 42P01)`},
		"select 1/0; select 1":    {engine.HandlerFault, "22012"},
		"savepoint a; select 1/0": {engine.HandlerFault, "22012"},
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
				return errors.Join(sends(sql)(ctx, tx), sends("select 2")(ctx, tx), sends("select from another")(ctx, tx))
			},
		} {
			err := o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
				_ = met(ctx, tx)
				return nil
			}), engine.ApplyOptions{})
			fault := wantClass(t, err, want.class)
			if !strings.Contains(fault.Error(), "returned no error, but a statement of its transaction failed: ") || !strings.Contains(fault.Error(), want.says) {
				t.Errorf("%s, %s: %v", sql, name, fault)
			}
		}
	}
	o.untouched()
}

// Which of several errors speaks for a handler that returns another one of its own.
func TestErrorOfAStatementDecidesWhereTheHandlerReturnsAnother(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	for sql, want := range map[string]engine.Class{
		"select from no_such": engine.MissingObject,
		"select 1/0":          engine.HandlerFault,
		"do $$ begin raise exception 'bad input' using errcode = 'XX000'; end $$": engine.Unclear,
		"do $$ begin raise exception 'pretended' using errcode = 'MR001'; end $$": engine.HandlerFault,
		"do $$ begin raise exception 'pretended' using errcode = '3D000'; end $$": engine.HandlerFault,
	} {
		fault := wantClass(t, o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
			_ = sends(sql)(ctx, tx)
			return projection.At(7, errors.New("something else"))
		}), engine.ApplyOptions{}), want)
		if fault.Position != 7 || fault.Probe != (want == engine.Unclear) || !strings.Contains(fault.Error(), "something else") {
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
	fault := wantClass(t, o.apply(write, engine.ApplyOptions{}), engine.Infrastructure)
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
		}), engine.ApplyOptions{}), engine.HandlerFault)
	}
	fault := wantClass(t, o.apply(writeAnd(sends("prepare mine as select 1")), engine.ApplyOptions{}), engine.HandlerFault)
	if !errors.Is(fault, ErrTxControl) || !strings.Contains(fault.Error(), "tx.Prepare") {
		t.Error(fault)
	}
}
