package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

// Probe implements engine.Health. It writes to the control schema and to a temporary file. It dials a connection,
// because batches that wait for the probe may use all connections of the pool. If the server has no connection left, it
// takes one of the pool.
//
// It ignores errors that occur only on a working server: a wait for another session's lock, a missing schema or
// privilege, and the role's temp_file_limit.
func (s port) Probe(ctx context.Context) error {
	own, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, dialed := s.dial(own, "")
	if dialed == nil {
		defer func() { _ = conn.Close(context.WithoutCancel(own)) }()
		return s.probe(ctx, conn)
	}
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("probe the server: %w", storeFault(errors.Join(dialed, err)))
	}
	defer pooled.Release()
	return s.probe(ctx, pooled.Conn())
}

func (s port) probe(ctx context.Context, conn *pgx.Conn) error {
	err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: queries.Text("begin_probe")}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.Text("probe_space"), pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.control.sql("probe_write"), pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil && !pgerr.IsMissing(err) && !pgerr.Is(err,
		pgerr.LockNotAvailable, pgerr.ConfigurationLimit, pgerr.InsufficientPrivilege) {
		return fmt.Errorf("probe the server: %w", storeFault(err))
	}
	return nil
}
