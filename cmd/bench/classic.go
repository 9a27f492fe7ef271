package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// classic are the statements of a common way to run a projection: lock its checkpoint, read after it, apply the events
// one by one, advance the checkpoint, commit. Each statement is a round trip. The statements are prepared, except the
// read, since each tenant has a table of its own.
type classic struct {
	lock, advance string
	// key are the first parameters of lock and advance.
	key   []any
	read  string
	mode  pgx.QueryExecMode
	apply func(ctx context.Context, tx pgx.Tx, e event.Envelope) error
}

// classicCheckpoint is the sequence of a single projection.
func classicCheckpoint(name string, tenant *pgstore.Tenant,
	apply func(ctx context.Context, tx pgx.Tx, e event.Envelope) error) classic {
	return classic{
		lock:    "select position from bench.checkpoint where contender = $1 for update",
		advance: "update bench.checkpoint set position = $2 where contender = $1",
		key:     []any{name},
		read: "select " + eventColumns + " from " + eventsOf(tenant) +
			" where global_seq > $1 order by global_seq limit $2",
		mode:  pgx.QueryExecModeCacheStatement,
		apply: apply,
	}
}

// tick runs the sequence once, and returns the number of events.
func (c classic) tick(ctx context.Context, conn *pgx.Conn) (n int, err error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() {
		if rollback := tx.Rollback(ctx); !errors.Is(rollback, pgx.ErrTxClosed) {
			err = errors.Join(err, rollback)
		}
	}()
	var position int64
	if err := tx.QueryRow(ctx, c.lock, c.key...).Scan(&position); err != nil {
		return 0, fmt.Errorf("lock the checkpoint: %w", err)
	}
	rows, err := tx.Query(ctx, c.read, c.mode, position, int64(handBatch))
	if err != nil {
		return 0, err
	}
	events, err := scanEvents(rows, 1)
	if err != nil {
		return 0, err
	}
	for _, e := range events {
		if err := c.apply(ctx, tx, e); err != nil {
			return 0, err
		}
	}
	if len(events) > 0 {
		if _, err := tx.Exec(ctx, c.advance, append(c.key[:len(c.key):len(c.key)],
			events[len(events)-1].Position)...); err != nil {
			return 0, err
		}
	}
	return len(events), tx.Commit(ctx)
}

// classicMark is the sequence of one of many projections, whose tenants have tables of their own. Its read is not
// prepared.
func classicMark(contender string, tenant, projection int, events string,
	apply func(ctx context.Context, tx pgx.Tx, e event.Envelope) error) classic {
	return classic{
		lock:    "select position from bench.marks where contender = $1 and tenant = $2 and projection = $3 for update",
		advance: "update bench.marks set position = $4 where contender = $1 and tenant = $2 and projection = $3",
		key:     []any{contender, tenant, projection},
		read:    "select " + eventColumns + " from " + events + " where global_seq > $1 order by global_seq limit $2",
		mode:    pgx.QueryExecModeExec,
		apply:   apply,
	}
}
