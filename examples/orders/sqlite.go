package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/sqlitestore"
)

// openSQLite opens the service on an SQLite file.
func openSQLite(ctx context.Context, s settings) (*service, error) {
	types, err := eventTypes()
	if err != nil {
		return nil, err
	}
	store, err := sqlitestore.Open(ctx, s.store, sqlitestore.Options{Types: types})
	if err != nil {
		return nil, err
	}
	if err := migrateSQLite(ctx, store); err != nil {
		store.Close()
		return nil, err
	}
	p, provider := process[*sql.Tx]{store}, provider{s.provider}
	return &service{store: store, close: store.Close,
		projections: []millrace.Projection{
			{Name: "process", Handler: sqlitestore.Route(sqlitestore.On(p.onPlaced),
				sqlitestore.On(p.onMade), sqlitestore.On(p.onDeclined))},
			{Name: "provider", Handler: millrace.DeliverRoute(millrace.DeliverOn(provider.request),
				millrace.DeliverOn(provider.refund))},
			{Name: "order_list", Handler: sqlitestore.Route(sqlitestore.OnQueued(listPlaced),
				sqlitestore.OnQueued(listPaid), sqlitestore.OnQueued(listCancelled))},
			{Name: "deadlines", Handler: sqlitestore.Route(sqlitestore.OnQueued(setDeadline(s.patience)),
				sqlitestore.OnQueued(clearPaid), sqlitestore.OnQueued(clearCancelled))},
			{Name: "turnover", Handler: sqlitestore.OnQueued(addTurnover)},
		},
		show: func(ctx context.Context, query, arg string) (text string, err error) {
			err = store.DB().QueryRowContext(ctx, query, arg).Scan(&text)
			if errors.Is(err, sql.ErrNoRows) {
				err = errNothing
			}
			return text, err
		},
		due: func(ctx context.Context, now time.Time) (ids []string, err error) {
			rows, err := store.DB().QueryContext(ctx, "select id from deadlines where due <= ? order by due limit 100",
				now.UnixMilli())
			if err != nil {
				return nil, err
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var id string
				if err := rows.Scan(&id); err != nil {
					return nil, err
				}
				ids = append(ids, id)
			}
			return ids, rows.Err()
		},
	}, nil
}

// migrateSQLite creates the tables of the store and of the service.
func migrateSQLite(ctx context.Context, store *sqlitestore.Store) error {
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	return store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, tables+";"+turnoverTable)
		return err
	})
}
