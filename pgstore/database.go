package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/within"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/session"
)

// database is what the parts of a store share: connections and their server, and the texts of statements.
type database struct {
	opts    Options
	log     *zap.Logger
	control controlSchema
	pool    *pgxpool.Pool
	// ownPool reports whether Open made the pool.
	ownPool bool
	// hooks is the pool of Options.HookDSN, nil without one.
	hooks  *pgxpool.Pool
	server server
	// sessions has the settings of the sessions that a pooler lends.
	sessions session.Pooled
	// described has what the server said of statements of messages.
	described descriptions
}

// onConn runs fn on a connection of the pool. If the connection leads to a standby, it is closed.
func (db *database) onConn(ctx context.Context, fn func(conn *pgx.Conn) error) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	err = fn(conn.Conn())
	closeStandby(ctx, conn.Conn(), err)
	return err
}

// repeatably is onConn for work that changes nothing if it fails. If something has discarded the prepared statements of
// the session, fn runs again. The driver forgets one of them with each error, so work that needs several would fail
// again and again.
func (db *database) repeatably(ctx context.Context, fn func(conn *pgx.Conn) error) error {
	return db.onConn(ctx, func(conn *pgx.Conn) error {
		err := fn(conn)
		if pgerr.Is(err, pgerr.NoPreparedStatement) && !conn.IsClosed() && conn.DeallocateAll(ctx) == nil {
			err = fn(conn)
		}
		return err
	})
}

// inTx runs fn in a transaction on a connection of the pool and commits it.
func (db *database) inTx(ctx context.Context, options pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	if err := db.notWithin(ctx); err != nil {
		return err
	}
	return db.onConn(ctx, func(conn *pgx.Conn) error { return pgx.BeginTxFunc(ctx, conn, options, fn) })
}

// durable runs fn in a transaction that commits synchronously, whatever the session's default is.
func (db *database) durable(ctx context.Context, doing string, fn func(tx pgx.Tx) error) error {
	return wrap(db.inTx(ctx, db.beginDurable(), fn), "%s", doing)
}

func (db *database) beginDurable() pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: queries.Text("begin_durable") + "; " + db.server.unbounded}
}

// querier is the pool, a connection or a transaction.
type querier interface {
	batchSender
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// batchSender is a connection, a transaction or the pool.
type batchSender interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

// queryAfter runs two statements in one round trip, and so in one session. The first returns one value, which is
// scanned into value. The rows of the second are returned.
func queryAfter[T any](ctx context.Context, q batchSender, first string, value any, scan pgx.RowToFunc[T], sql string,
	args ...any) (found []T, err error) {
	var batch pgx.Batch
	batch.Queue(first)
	batch.Queue(sql, args...)
	results := q.SendBatch(ctx, &batch)
	defer func() { err = errors.Join(err, results.Close()) }()
	if err := results.QueryRow().Scan(value); err != nil {
		return nil, err
	}
	rows, _ := results.Query()
	return pgx.CollectRows(rows, scan)
}

const (
	// uncompiled turns off JIT compilation, which took 74 of 75 ms with 20,000 leases: the planner overestimates the
	// cost of the statement.
	uncompiled = "disable_jit"
	// skipping is for statements that skip from one key of an index to the next.
	skipping = "skip_in_order"
	// forArguments is for statements whose best plan depends on their arguments. After five executions the server may
	// choose a generic plan, which would read all rows in order to return one.
	forArguments = "plan_for_arguments"
)

// queryPlanned reads rows by a statement that is planned under a setting.
func queryPlanned[T any](ctx context.Context, db *database, setting string, scan pgx.RowToFunc[T], statement string,
	args ...any) (found []T, err error) {
	err = db.repeatably(ctx, func(conn *pgx.Conn) (err error) {
		found, err = queryAfter(ctx, conn, queries.Text(setting), nil, scan, db.control.sql(statement), args...)
		return err
	})
	return found, err
}

// server describes the server, as found when the store was opened.
type server struct {
	// pooling describes the pooler between the pool and the server.
	pooling session.Pooling
	// unbounded is a statement that removes the server's limit for a transaction. It is empty for servers without such
	// a limit.
	unbounded string
	// watchesClients reports whether the server can notice during a statement that its client is gone.
	watchesClients bool
	// preparesUses reports whether hooks of the pool run before or after each use of a connection.
	preparesUses bool
}

// notWithin returns ErrWithinTx if ctx is the context of a transaction of the store.
func (db *database) notWithin(ctx context.Context) error { return within.Refuse(ctx, db) }

// mark marks a context as that of a transaction of the store. The key of marks is the database.
func (db *database) mark(ctx context.Context) (_ context.Context, end func()) {
	return within.Mark(ctx, db)
}

// refuseRead returns an error if ctx is that of a function that queues statements of a batch.
func (db *database) refuseRead(ctx context.Context) error { return within.RefuseRead(ctx, db) }

// inIncarnation calls read, which returns the server's incarnation. If the server has none, inIncarnation creates it
// and calls read again.
func (db *database) inIncarnation(ctx context.Context, read func() error) error {
	err := read()
	if !pgerr.Is(err, pgerr.NoIncarnation) {
		return err
	}
	if _, err := db.pool.Exec(ctx, db.control.sql("make_incarnation")); err != nil {
		return fmt.Errorf("create the server's incarnation: %w", err)
	}
	return read()
}
