package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/deadletters"
	"github.com/millrace-go/millrace/projection"
)

func (s letterStore) Insert(ctx context.Context, id projection.ID, kind deadletters.Kind, filter projection.DeadLetterFilter, limit int) (command int64, err error) {
	err = s.durable(ctx, "insert the command", func(tx pgx.Tx) error {
		if err := s.lockTenants(ctx, tx, id.Tenant); err != nil {
			return err
		}
		args := append([]any{id.Tenant, id.Name, id.Partition, kind}, filterArgs(filter)...)
		err := tx.QueryRow(ctx, s.control.sql("insert_command"), append(args, limit, s.control.controlChannel)...).Scan(&command, new(int))
		if errors.Is(err, pgx.ErrNoRows) {
			return s.unknown(ctx, tx, id)
		}
		return err
	})
	return command, err
}

func (s letterStore) Cancel(ctx context.Context, id projection.ID, command int64) (parts []deadletters.Part, err error) {
	err = s.durable(ctx, "end the command", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.control.sql("lock_command"), command); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.control.sql("cancel_command"), id.Tenant, id.Name, command, s.control.controlChannel); err != nil {
			return err
		}
		parts, err = s.parts(ctx, tx, id, command)
		return err
	})
	return parts, err
}

func (s letterStore) Parts(ctx context.Context, id projection.ID, command int64) ([]deadletters.Part, error) {
	return s.parts(ctx, s.pool, id, command)
}

func (s letterStore) parts(ctx context.Context, q querier, id projection.ID, command int64) ([]deadletters.Part, error) {
	rows, _ := q.Query(ctx, s.control.sql("command_status"), command, id.Tenant, id.Name)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p deadletters.Part, err error) {
		err = row.Scan(&p.ID, &p.Row, &p.Ended, &p.Done, &p.Failed, &p.Unowned)
		return p, err
	})
}

func (s letterStore) RunUnowned(ctx context.Context, part deadletters.Part) error {
	_, err := s.runUnowned(ctx, part.Row, part.ID)
	return err
}
