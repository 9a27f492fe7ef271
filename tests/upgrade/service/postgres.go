package service

import (
	"context"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

const recordRow = "insert into public.applied (tenant, projection, position) values ($1, $2, $3)"

type postgres struct{ *pgstore.Store }

type postgresTenant struct{ *pgstore.Tenant }

func openPostgres(ctx context.Context, dsn string) (Store, error) {
	store, err := pgstore.Open(ctx, dsn, pgstore.Options{})
	if err != nil {
		return nil, err
	}
	return postgres{store}, nil
}

func (s postgres) Tenant(name string) (Tenant, error) {
	tenant, err := s.ForTenant(name)
	return postgresTenant{tenant}, err
}

func (t postgresTenant) Events(ctx context.Context) iter.Seq2[event.Envelope, error] {
	return readAll(ctx, t.ReadAll)
}

func (s postgres) prepare(ctx context.Context) error {
	_, err := s.Pool().Exec(ctx, `create table if not exists public.applied
		(at bigint generated always as identity, tenant text, projection text, position bigint)`)
	return err
}

func (s postgres) handler(check func(event.Envelope) error) millrace.Handler {
	return pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		if err := check(e); err != nil {
			return err
		}
		id, _ := millrace.ProjectionFrom(ctx)
		_, err := tx.Exec(ctx, recordRow, id.Tenant, id.Name, e.Position)
		return err
	})
}

func (s postgres) record(ctx context.Context, id projection.ID, position int64) error {
	_, err := s.Pool().Exec(ctx, recordRow, id.Tenant, id.Name, position)
	return err
}

func (s postgres) Applied(ctx context.Context, tenant string) (map[string][]int64, error) {
	rows, _ := s.Pool().Query(ctx, "select projection, position from public.applied where tenant = $1 order by at",
		tenant)
	positions := make(map[string][]int64)
	var name string
	var position int64
	_, err := pgx.ForEachRow(rows, []any{&name, &position}, func() error {
		positions[name] = append(positions[name], position)
		return nil
	})
	return positions, err
}
