package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

// health implements engine.Health: it examines whether the database works.
type health struct{ *database }

var _ engine.Health = health{}

// Probe implements engine.Health. It writes to the control schema and to a temporary file. It dials a connection,
// because batches that wait for the probe may use all connections of the pool. If the server has no connection left, it
// takes one of the pool.
//
// It ignores errors that occur only on a working server: a wait for another session's lock, a missing schema or
// privilege, and the role's temp_file_limit.
func (h health) Probe(ctx context.Context) error {
	own, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, dialed := h.dial(own, "")
	if dialed == nil {
		defer func() { _ = conn.Close(context.WithoutCancel(own)) }()
		return h.probe(ctx, conn)
	}
	pooled, err := h.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("probe the server: %w", storeFault(errors.Join(dialed, err)))
	}
	defer pooled.Release()
	return h.probe(ctx, pooled.Conn())
}

func (h health) probe(ctx context.Context, conn *pgx.Conn) error {
	err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: queries.Text("begin_probe")}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.Text("probe_space"), pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, h.control.sql("probe_write"), pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil && !pgerr.IsMissing(err) && !pgerr.Is(err,
		pgerr.LockNotAvailable, pgerr.ConfigurationLimit, pgerr.InsufficientPrivilege) {
		return fmt.Errorf("probe the server: %w", storeFault(err))
	}
	return nil
}

func (h health) Ping(ctx context.Context) error {
	var recovery, readOnly bool
	err := h.pool.QueryRow(ctx, queries.Text("ping"), pgx.QueryExecModeExec).Scan(&recovery, &readOnly)
	switch {
	case err != nil:
		return fmt.Errorf("ping: %w", storeFault(err))
	case recovery:
		return fmt.Errorf("ping: %w", event.ErrNotPrimary)
	case readOnly:
		return fmt.Errorf("ping: %w", &faults.Fault{Class: faults.Infrastructure, Probe: true, Err: errReadOnly})
	}
	return nil
}

// errReadOnly is returned where sessions cannot write.
var errReadOnly = errors.New("default_transaction_read_only is on, but must be off: nothing could be appended")

// SchemaVersions implements engine.Health.
func (h health) SchemaVersions(ctx context.Context) (engine.SchemaVersions, error) {
	v := engine.SchemaVersions{Newest: len(ownMigrations.control)}
	var err error
	v.Found, err = h.controlVersion(ctx, h.pool)
	if errors.Is(h.missing(err), ErrNotMigrated) {
		return v, nil
	}
	if err == nil && v.Found >= v.Newest {
		v.Outdated, err = h.outdatedTenants(ctx, len(ownMigrations.tenant), "")
	}
	return v, wrap(h.missing(err), "compare the versions of the schemas")
}

// Runnable implements engine.Health. Every database whose tenants can be listed is runnable.
func (h health) Runnable(context.Context) error { return nil }
