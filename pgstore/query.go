package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

// onConn runs fn on a connection of the pool. If the connection leads to a standby, it is closed.
func (s *Store) onConn(ctx context.Context, fn func(conn *pgx.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
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
func (s *Store) repeatably(ctx context.Context, fn func(conn *pgx.Conn) error) error {
	return s.onConn(ctx, func(conn *pgx.Conn) error {
		err := fn(conn)
		if pgerr.Is(err, pgerr.NoPreparedStatement) && !conn.IsClosed() && conn.DeallocateAll(ctx) == nil {
			err = fn(conn)
		}
		return err
	})
}

// inTx runs fn in a transaction on a connection of the pool and commits it.
func (s *Store) inTx(ctx context.Context, options pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	if err := s.notWithin(ctx); err != nil {
		return err
	}
	return s.onConn(ctx, func(conn *pgx.Conn) error { return pgx.BeginTxFunc(ctx, conn, options, fn) })
}

// durable runs fn in a transaction that commits synchronously, whatever the session's default is.
func (s *Store) durable(ctx context.Context, doing string, fn func(tx pgx.Tx) error) error {
	return wrap(s.inTx(ctx, s.beginDurable(), fn), "%s", doing)
}

func (s *Store) beginDurable() pgx.TxOptions {
	return pgx.TxOptions{BeginQuery: queries.Text("begin_durable") + "; " + s.server.unbounded}
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

// queryAfter reads the rows of a statement after another one that returns a single value, which is scanned into value.
// Both go in one round trip and run in one session.
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

// queryUncompiled reads rows without JIT compilation, which took 74 of 75 ms with 20,000 leases: the planner
// overestimates the cost of the statement.
func queryUncompiled[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], statement string,
	args ...any) (found []T, err error) {
	err = s.repeatably(ctx, func(conn *pgx.Conn) (err error) {
		found, err = queryAfter(ctx, conn, queries.Text("disable_jit"), nil, scan, s.control.sql(statement), args...)
		return err
	})
	return found, err
}

// queryPlanned is queryUncompiled for statements whose best plan depends on their arguments. After five executions the
// server may choose a generic plan, which would read all rows in order to return one.
func queryPlanned[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], statement string,
	args ...any) (found []T, err error) {
	err = s.repeatably(ctx, func(conn *pgx.Conn) (err error) {
		found, err = queryAfter(ctx, conn, queries.Text("plan_for_arguments"), nil, scan, s.control.sql(statement),
			args...)
		return err
	})
	return found, err
}
