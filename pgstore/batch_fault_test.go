package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
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
		wantClass(t, err, engine.HandlerFault)
		// The control: without the savepoint it is the infrastructure's, even if the handler says something else.
		err = o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
			_ = raise(ctx, tx)
			return errors.New("another error")
		}), engine.ApplyOptions{})
		wantClass(t, err, engine.Infrastructure)
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
		fault := wantClass(t, o.apply(writeAnd(misuse), engine.ApplyOptions{}), engine.HandlerFault)
		if t.Failed() {
			t.Fatalf("%s: %v", name, fault)
		}
		o.untouched()
	}
	if err := o.apply(write, engine.ApplyOptions{}); err != nil {
		t.Error(err)
	}
	o.applied(2)
}

// timeoutError is what a handler's own network calls return.
type timeoutError struct{}

func (timeoutError) Error() string   { return "the other service did not answer" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

func TestFaultOfAnotherServiceIsTheHandlers(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	for _, err := range []error{
		timeoutError{}, io.EOF, context.DeadlineExceeded, context.Canceled, projection.ErrLeaseLost, ErrNotMigrated,
		fmt.Errorf("call: %w", &pgconn.ConnectError{}),
		&engine.Fault{Class: engine.Infrastructure, Unreachable: true, Err: errors.New("of another store")},
	} {
		wantClass(t, o.apply(writeAnd(func(context.Context, pgx.Tx) error { return err }), engine.ApplyOptions{}), engine.HandlerFault)
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
		if fault := classify(err); err == nil || fault.Class != engine.Unclear || !fault.Probe {
			t.Errorf("%s: %v", name, err)
		}
		o.untouched()
	}
}

func TestDeferredConstraintFailsTheBatchAtItsCommit(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 2)
	mustExec(t, o.store, "alter table public.model add unique (position) deferrable initially deferred")
	err := o.apply(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		return errors.Join(write(ctx, tx, events), write(ctx, tx, events))
	}, engine.ApplyOptions{})
	wantClass(t, err, engine.HandlerFault)
	if !pgerr.Is(err, "23505") {
		t.Error(err)
	}
	o.untouched()
}
