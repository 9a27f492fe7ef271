package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
)

// openPostgres opens the service on a PostgreSQL database.
func openPostgres(ctx context.Context, s settings) (*service, error) {
	types, err := eventTypes()
	if err != nil {
		return nil, err
	}
	store, err := pgstore.Open(ctx, s.store, pgstore.Options{Types: types,
		TenantSetup: []pgstore.TenantStep{pgstore.TenantSQL(tables), pgstore.TenantSQL(turnoverTable)}})
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		store.Close()
		return nil, err
	}
	p, provider := process[pgx.Tx]{store}, provider{s.provider}
	return &service{store: store, close: store.Close,
		projections: []millrace.Projection{
			{Name: "process", Handler: pgstore.Route(pgstore.On(p.onPlaced),
				pgstore.On(p.onMade), pgstore.On(p.onDeclined))},
			{Name: "provider", Handler: millrace.DeliverRoute(millrace.DeliverOn(provider.request),
				millrace.DeliverOn(provider.refund))},
			{Name: "order_list", Handler: pgstore.Route(pgstore.OnQueued(listPlaced),
				pgstore.OnQueued(listPaid), pgstore.OnQueued(listCancelled))},
			{Name: "deadlines", Handler: pgstore.Route(pgstore.OnQueued(setDeadline(s.patience)),
				pgstore.OnQueued(clearPaid), pgstore.OnQueued(clearCancelled))},
			{Name: "turnover", Handler: pgstore.OnQueued(addTurnover)},
		},
		show: func(ctx context.Context, query, arg string) (text string, err error) {
			err = store.InTx(ctx, func(ctx context.Context,
				tx pgx.Tx) error {
				return tx.QueryRow(ctx, query, arg).Scan(&text)
			})
			if errors.Is(err, pgx.ErrNoRows) {
				err = errNothing
			}
			return text, err
		},
		due: func(ctx context.Context, now time.Time) (ids []string, err error) {
			err = store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				rows, _ := tx.Query(ctx, "select id from deadlines where due <= $1 order by due limit 100",
					now.UnixMilli())
				ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
				return err
			})
			return ids, err
		},
	}, nil
}
