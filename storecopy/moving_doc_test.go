package storecopy_test

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/storecopy"
)

// createTotals and createSearch are the read models of docs/moving.md.
const (
	createTotals = `create table totals (tenant text, stream text, n integer, primary key (tenant, stream))`
	createSearch = `create table search (position bigint primary key)`
)

func move(ctx context.Context, file *sqlitestore.Store, store *pgstore.Store) (storecopy.Report, error) {
	return storecopy.Run(ctx, file, store, storecopy.Options{
		Projections: map[string]storecopy.ReadModel{
			"totals":   storecopy.Keep,    // copyTotals copies the table
			"search":   storecopy.Rebuild, // the table is empty, and is filled from the first event on
			"invoices": storecopy.Keep,    // deliveries have no read model
		},
		ReadModels: func(ctx context.Context, tx pgx.Tx, tenant string) error {
			return copyTotals(ctx, file.DB(), tx, tenant)
		},
		Progress: func(p storecopy.Progress) {
			log.Println(p.Phase, p.Tenant, p.Table, p.Rows)
		},
	})
}

func copyTotals(ctx context.Context, from *sql.DB, tx pgx.Tx, tenant string) error {
	rows, err := from.QueryContext(ctx, `select stream, n from totals where tenant = ?`, tenant)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"totals"}, []string{"stream", "n"}, pgx.CopyFromFunc(func() ([]any, error) {
		if !rows.Next() {
			return nil, rows.Err()
		}
		var stream string
		var n int64
		err := rows.Scan(&stream, &n)
		return []any{stream, n}, err
	}))
	return err
}

// TestProgramOfTheMovingDocument runs the program of docs/moving.md before and after its move.
func TestProgramOfTheMovingDocument(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := sqlitestore.Open(ctx, filepath.Join(t.TempDir(), "store.db"), sqlitestore.Options{})
	check(err)
	defer file.Close()
	check(file.Migrate(ctx))
	acme, err := file.CreateTenant(ctx, "acme")
	check(err)
	check(file.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, createTotals+";"+createSearch)
		return err
	}))
	sent := 0
	run := func(store millrace.Store, totals, search millrace.Handler) {
		t.Helper()
		rt, err := millrace.New(millrace.Config{Store: store, Tenants: []string{"acme"}})
		check(err)
		check(rt.Register(millrace.Projection{Name: "totals", Handler: totals}, millrace.Projection{Name: "search", Handler: search},
			millrace.Projection{Name: "invoices", Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
				sent++
				return nil
			})}))
		_, err = rt.RunUntilIdle(ctx)
		check(err)
	}
	happened := event.Untyped("Happened", nil)
	_, err = acme.Append(ctx, "a", event.NoStream, happened, happened)
	check(err)
	run(file, sqlitestore.Each(func(ctx context.Context, tx *sql.Tx, e event.Envelope) error {
		_, err := tx.ExecContext(ctx, `insert into totals values ('acme', ?, 1) on conflict do update set n = n + 1`, e.Stream)
		return err
	}), sqlitestore.Each(func(ctx context.Context, tx *sql.Tx, e event.Envelope) error {
		_, err := tx.ExecContext(ctx, `insert into search values (?)`, e.Position)
		return err
	}))

	store, err := pgstore.Open(ctx, pgtest.Database(t), pgstore.Options{TenantSetup: []pgstore.TenantStep{
		pgstore.TenantSQL(`create table totals (stream text primary key, n integer)`), pgstore.TenantSQL(createSearch)}})
	check(err)
	defer store.Close()
	check(store.Migrate(ctx))
	_, err = move(ctx, file, store)
	check(err)
	moved, err := store.ForTenant("acme")
	check(err)
	_, err = moved.Append(ctx, "a", event.Exact(2), happened)
	check(err)
	run(store, pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		_, err := tx.Exec(ctx, `insert into totals values ($1, 1) on conflict (stream) do update set n = totals.n + 1`, e.Stream)
		return err
	}), pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		_, err := tx.Exec(ctx, `insert into search values ($1)`, e.Position)
		return err
	}))
	var total, found int
	check(store.Pool().QueryRow(ctx, `select (select n from millrace_acme.totals), (select count(*) from millrace_acme.search)`).Scan(&total, &found))
	if total != 3 || found != 3 || sent != 3 {
		t.Errorf("counted %d, found %d, sent %d, want 3 each", total, found, sent)
	}
	if err := storecopy.Cancel(ctx, file, store); !errors.Is(err, storecopy.ErrOpened) {
		t.Errorf("cancelled after the end: %v", err)
	}
}
