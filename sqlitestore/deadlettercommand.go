package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/millrace-go/millrace/internal/deadletters"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// keepCommands is how long a command that has ended is kept.
const keepCommands = 24 * time.Hour

func (s letterStore) Insert(ctx context.Context, id projection.ID, kind deadletters.Kind, filter projection.DeadLetterFilter, limit int) (command int64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, failed(err, "insert the command")
	}
	err = s.transact(ctx, func(tx *sql.Tx) error {
		rows, err := column[int32](ctx, tx, "letter_projections", id.Tenant, id.Name, id.Partition)
		if err == nil && len(rows) == 0 {
			err = unknownProjection(ctx, tx, id)
		}
		if err != nil {
			return err
		}
		var root any // null in the first row
		for _, row := range rows {
			number, err := s.insertCommand(ctx, tx, row, root, kind, append(filterArgs(filter), limit))
			if err != nil {
				return err
			}
			if root == nil {
				root, command = number, number
			}
		}
		return nil
	})
	return command, failed(err, "insert the command")
}

// insertCommand inserts the row of a command for one projection, and notifies the owner of its lease. It deletes old
// commands.
func (s *Store) insertCommand(ctx context.Context, tx *sql.Tx, row int32, root any, kind deadletters.Kind, filterAndLimit []any) (command int64, err error) {
	now := time.Now()
	if err := execute(ctx, tx, "delete_old_commands", row, now.Add(-keepCommands).UnixMicro()); err != nil {
		return 0, err
	}
	args := append([]any{root, row, kind}, filterAndLimit...)
	if _, err := runOne(ctx, tx, "insert_command", append(args, now.UnixMicro()), &command); err != nil {
		return 0, err
	}
	return command, s.announce(ctx, tx, commanded(row))
}

// commanded is the notice that a projection has commands.
func commanded(row int32) engine.Notice {
	return engine.Notice{Control: true, Row: row, Commanded: true}
}

func (s letterStore) Cancel(ctx context.Context, id projection.ID, command int64) (parts []deadletters.Part, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, failed(err, "end the command")
	}
	err = s.transact(ctx, func(tx *sql.Tx) error {
		var row int32
		var ended bool
		var open []int32
		args := []any{command, id.Tenant, id.Name, time.Now().UnixMicro()}
		err := each(ctx, tx, "cancel_command", args, []any{&row, &ended}, func() error {
			if !ended {
				open = append(open, row)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, row := range open {
			if err := s.announce(ctx, tx, commanded(row)); err != nil {
				return err
			}
		}
		parts, err = s.parts(ctx, tx, id, command)
		return err
	})
	return parts, failed(err, "end the command")
}

func (s letterStore) Parts(ctx context.Context, id projection.ID, command int64) ([]deadletters.Part, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.parts(ctx, s.readers, id, command)
}

func (s letterStore) parts(ctx context.Context, q querier, id projection.ID, command int64) (parts []deadletters.Part, err error) {
	living, err := s.livingOwner(ctx, q)
	if err != nil {
		return nil, err
	}
	var p deadletters.Part
	row := []any{&p.ID, &p.Row, &p.Ended, &p.Done, &p.Failed, &p.Unowned}
	err = each(ctx, q, "command_parts", []any{command, id.Tenant, id.Name, living}, row, func() error {
		parts = append(parts, p)
		return nil
	})
	return parts, err
}

func (s letterStore) RunUnowned(ctx context.Context, part deadletters.Part) error {
	_, err := s.runUnowned(ctx, part.Row, part.ID)
	return err
}

// runUnowned runs a command that calls no handler, if no living node owns the lease. It reports whether it did.
func (s *Store) runUnowned(ctx context.Context, row int32, command int64) (done bool, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		living, err := s.livingOwner(ctx, tx)
		if err == nil {
			done, err = runOne(ctx, tx, "fence_unowned", []any{row, command, living})
		}
		if err != nil || !done {
			return err
		}
		var kind deadletters.Kind
		if _, err := runOne(ctx, tx, "command_kind", []any{command}, &kind); err != nil {
			return err
		}
		if kind == deadletters.Replay {
			return endReplay(ctx, tx, row, command)
		}
		_, err = discard(ctx, tx, row, command)
		return err
	})
	return done, failed(err, "run a command on dead letters without an owner")
}
