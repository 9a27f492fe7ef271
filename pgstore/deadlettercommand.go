package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// command inserts a command and waits for its result.
func (d *DeadLetters) command(ctx context.Context, kind string, filter projection.DeadLetterFilter, limit int) (_ projection.CommandResult, err error) {
	defer d.explain(&err, kind)
	if err := bounded(filter, limit); err != nil {
		return projection.CommandResult{}, err
	}
	if _, err := d.args(filter, nil); err != nil {
		return projection.CommandResult{}, err
	}
	var command int64
	c := d.store.control
	err = d.store.durable(ctx, "insert the command", func(tx pgx.Tx) error {
		if err := d.store.lockTenants(ctx, tx, d.id.Tenant); err != nil {
			return err
		}
		args := append([]any{d.id.Tenant, d.id.Name, d.id.Partition, kind}, filterArgs(filter)...)
		err := tx.QueryRow(ctx, c.sql("insert_command"), append(args, limit, c.controlChannel)...).Scan(&command, new(int))
		if errors.Is(err, pgx.ErrNoRows) {
			return d.store.unknown(ctx, tx, d.id)
		}
		return err
	})
	if err != nil {
		return projection.CommandResult{}, err
	}
	return d.wait(ctx, command)
}

// Wait waits for a command as Replay and Discard do. command is CommandResult.Command of their results.
func (d *DeadLetters) Wait(ctx context.Context, command int64) (_ projection.CommandResult, err error) {
	defer d.explain(&err, "wait for a command on")
	return d.wait(ctx, command)
}

// Cancel ends a command. command is CommandResult.Command of the result of Replay or Discard. Completed work stays, and
// a replay in progress finishes first. Wait, Replay and Discard then return the result so far. If a process crashes
// during a replay, the dead letter is parked again. Cancel has no effect on a command that has ended. It returns
// projection.ErrCommandNotFound if there is no such command.
func (d *DeadLetters) Cancel(ctx context.Context, command int64) error {
	c := d.store.control
	var status commandStatus
	err := d.store.durable(ctx, fmt.Sprintf("cancel command %d of %s", command, d.id), func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, c.sql("lock_command"), command); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, c.sql("cancel_command"), d.id.Tenant, d.id.Name, command, c.controlChannel); err != nil {
			return err
		}
		status, err = d.status(ctx, tx, command)
		return err
	})
	if err != nil {
		return err
	}
	return d.runUnowned(ctx, status)
}

// commandStatus is the state of a command. open are its parts that have not ended.
type commandStatus struct {
	result projection.CommandResult
	open   []commandPart
}

// commandPart is a command for one partition. unowned reports that it can run without a handler, and that no living node
// owns the lease.
type commandPart struct {
	id      int64
	row     int32
	unowned bool
}

// status reads a command. It returns projection.ErrCommandNotFound if there is none.
func (d *DeadLetters) status(ctx context.Context, q querier, command int64) (status commandStatus, err error) {
	status.result.Command = command
	rows, _ := q.Query(ctx, d.store.control.sql("command_status"), command, d.id.Tenant, d.id.Name)
	var part commandPart
	var ended bool
	var done, failed int64
	parts := 0
	_, err = pgx.ForEachRow(rows, []any{&part.id, &part.row, &ended, &done, &failed, &part.unowned}, func() error {
		parts++
		if status.result.Done, status.result.Failed = status.result.Done+done, status.result.Failed+failed; !ended {
			status.open = append(status.open, part)
		}
		return nil
	})
	if err == nil && parts == 0 {
		err = projection.ErrCommandNotFound
	}
	return status, err
}

// runUnowned runs the open parts of a command that call no handler, if no living node owns their leases.
func (d *DeadLetters) runUnowned(ctx context.Context, status commandStatus) error {
	for _, part := range status.open {
		if !part.unowned {
			continue
		}
		if _, err := d.store.runUnowned(ctx, part.row, part.id); err != nil {
			return err
		}
	}
	return nil
}

// wait polls for the result of a command, also during an outage of the database. It runs a command that calls no
// handler itself if no node owns the lease.
func (d *DeadLetters) wait(ctx context.Context, command int64) (projection.CommandResult, error) {
	result := projection.CommandResult{Command: command}
	var unowned error
	err := backoff.Poll(ctx, 5*time.Millisecond, 200*time.Millisecond, func() (ended bool, _ error) {
		status, err := d.status(ctx, d.store.pool, command)
		switch {
		case errors.Is(err, projection.ErrCommandNotFound):
			return false, err
		case err == nil:
			if result = status.result; len(status.open) == 0 {
				return true, nil
			}
			unowned = d.runUnowned(ctx, status)
		case storeFault(err).Class != engine.Infrastructure:
			return false, fmt.Errorf("%w: %w", projection.ErrCommandPending, storeFault(err))
		}
		return false, nil
	})
	if err != nil && err == ctx.Err() {
		err = fmt.Errorf("%w: %w", projection.ErrCommandPending, errors.Join(err, unowned))
	}
	if err != nil {
		return result, fmt.Errorf("command %d: %w", command, err)
	}
	return result, nil
}
