package service

import (
	"context"
	"database/sql"
	"errors"
	"iter"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

const recordRowOfFile = "insert into applied (tenant, projection, position) values (?, ?, ?)"

type file struct{ *sqlitestore.Store }

type fileTenant struct{ *sqlitestore.Tenant }

func openFile(ctx context.Context, path string) (Store, error) {
	store, err := sqlitestore.Open(ctx, path, sqlitestore.Options{})
	if err != nil {
		return nil, err
	}
	return file{store}, nil
}

func (s file) Tenant(name string) (Tenant, error) {
	tenant, err := s.ForTenant(name)
	return fileTenant{tenant}, err
}

func (t fileTenant) Events(ctx context.Context) iter.Seq2[event.Envelope, error] {
	return readAll(ctx, t.ReadAll)
}

func (s file) exec(ctx context.Context, query string, args ...any) error {
	return s.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}

func (s file) prepare(ctx context.Context) error {
	return s.exec(ctx, `create table if not exists applied
		(at integer primary key autoincrement, tenant text, projection text, position integer)`)
}

func (s file) handler(check func(event.Envelope) error) millrace.Handler {
	return sqlitestore.Each(func(ctx context.Context, tx *sql.Tx, e event.Envelope) error {
		if err := check(e); err != nil {
			return err
		}
		id, _ := millrace.ProjectionFrom(ctx)
		_, err := tx.ExecContext(ctx, recordRowOfFile, id.Tenant, id.Name, e.Position)
		return err
	})
}

func (s file) record(ctx context.Context, id projection.ID, position int64) error {
	return s.exec(ctx, recordRowOfFile, id.Tenant, id.Name, position)
}

func (s file) Applied(ctx context.Context, tenant string) (positions map[string][]int64, err error) {
	rows, err := s.DB().QueryContext(ctx, "select projection, position from applied where tenant = ? order by at",
		tenant)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	positions = make(map[string][]int64)
	for rows.Next() {
		var name string
		var position int64
		if err := rows.Scan(&name, &position); err != nil {
			return nil, err
		}
		positions[name] = append(positions[name], position)
	}
	return positions, nil
}
