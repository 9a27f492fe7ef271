package moves_test

import (
	"context"
	"database/sql"
	"log"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tests/kit"
)

func move(ctx context.Context, from, to millrace.Store, readModels millrace.Hook) (admin.MoveReport, error) {
	return admin.MoveTenant(ctx, from, to, "acme", admin.MoveOptions{
		Projections: map[string]admin.MoveAction{
			"totals":   admin.MoveKeep,    // readModels copies the table
			"search":   admin.MoveRebuild, // the table is empty, and is filled from the first event on
			"invoices": admin.MoveKeep,    // deliveries have no read model
		},
		ReadModels: readModels,
		Progress: func(p admin.MoveProgress) {
			log.Println(p.Table, p.Rows, p.Compared)
		},
	})
}

func copyTotals(ctx context.Context, from *sql.DB, tx pgx.Tx, tenant string) error {
	rows, err := from.QueryContext(ctx, `select stream, n from totals where tenant = ?`, tenant)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"totals"}, []string{"stream", "n"},
		pgx.CopyFromFunc(func() ([]any, error) {
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

// program is the program of docs/moving.md on one store. owner is the store of the role that migrates and moves.
type program struct {
	*place
	owner *place
	sent  *int
}

// newProgram returns the program on a new store: in PostgreSQL under two roles.
func newProgram(t *testing.T, kind string, sent *int) program {
	t.Helper()
	if kind == "file" {
		p := newFile(t)
		p.exec(t,
			`create table totals (tenant text, stream text, n integer, primary key (tenant, stream)); create table search (position bigint primary key)`)
		return program{p, p, sent}
	}
	owner, app := kit.RolesOf(t, pgtest.Database(t))
	setup := pgstore.Options{TenantSetup: []pgstore.TenantStep{pgstore.TenantSQL(`create table totals (stream text primary key, n integer);
		create table search (position bigint primary key)`)}}
	open := func(dsn string) *place {
		store := must(pgstore.Open(testContext(t), dsn, setup))(t)
		t.Cleanup(store.Close)
		return &place{Store: store, pg: store, path: dsn, schema: "millrace"}
	}
	migrates := open(owner)
	noError(t, migrates.pg.Migrate(testContext(t)))
	return program{open(app), migrates, sent}
}

// run runs the program until all events are handled.
func (p program) run(t *testing.T) {
	t.Helper()
	totals, search := millrace.Handler(pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		_, err := tx.Exec(ctx, `insert into totals values ($1, 1) on conflict (stream) do update set n = totals.n + 1`,
			e.Stream)
		return err
	})), millrace.Handler(pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		_, err := tx.Exec(ctx, `insert into search values ($1)`, e.Position)
		return err
	}))
	if p.file != nil {
		totals = sqlitestore.Each(func(ctx context.Context, tx *sql.Tx, e event.Envelope) error {
			_, err := tx.ExecContext(ctx,
				`insert into totals values ('acme', ?, 1) on conflict do update set n = n + 1`, e.Stream)
			return err
		})
		search = sqlitestore.Each(func(ctx context.Context, tx *sql.Tx, e event.Envelope) error {
			_, err := tx.ExecContext(ctx, `insert into search values (?)`, e.Position)
			return err
		})
	}
	rt := must(millrace.New(millrace.Config{Store: p, Tenants: []string{"acme"}}))(t)
	noError(t, rt.Register(millrace.Projection{Name: "totals", Handler: totals},
		millrace.Projection{Name: "search", Handler: search},
		millrace.Projection{Name: "invoices",
			Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
				*p.sent++
				return nil
			})}))
	must(rt.RunUntilIdle(testContext(t)))(t)
}

// readModels copies the totals of a store to this one.
func (p program) readModels(t *testing.T, from program) millrace.Hook {
	totals := func(context.Context) (n string, err error) {
		return strings.Join(from.totals(t), ""), nil
	}
	switch {
	case p.file != nil:
		return sqlitestore.Hook(func(ctx context.Context, tx *sql.Tx) error {
			n, err := totals(ctx)
			if err == nil {
				_, err = tx.ExecContext(ctx, `insert into totals values ('acme', 'a', ?)`, n)
			}
			return err
		})
	case from.file != nil:
		return pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
			return copyTotals(ctx, from.file.DB(), tx, "acme")
		})
	}
	return pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
		n, err := totals(ctx)
		if err == nil {
			_, err = tx.Exec(ctx, `insert into totals values ('a', $1::text::integer)`, n)
		}
		return err
	})
}

// totals returns the total of the stream a.
func (p program) totals(t *testing.T) []string {
	if p.file != nil {
		return p.column(t, `select cast(n as text) from totals where tenant = ?1`, "acme")
	}
	return p.column(t, `select n::text from {tenant}.totals where $1 <> ''`, "acme")
}

// TestProgramOfTheMovingDocument runs the program of docs/moving.md before and after its move, in PostgreSQL under two
// roles.
func TestProgramOfTheMovingDocument(t *testing.T) {
	t.Parallel()
	for _, kinds := range [][2]string{{"file", "PostgreSQL"}, {"PostgreSQL", "PostgreSQL"}, {"PostgreSQL", "file"},
		{"file", "file"}} {
		t.Run(kinds[0]+" to "+kinds[1], func(t *testing.T) {
			t.Parallel()
			ctx, sent := testContext(t), 0
			from, to := newProgram(t, kinds[0], &sent), newProgram(t, kinds[1], &sent)
			must(from.owner.create(t, "acme").Append(ctx, "a", event.NoStream, happened, happened))(t)
			from.run(t)
			must(move(ctx, from.owner, to.owner, to.readModels(t, from)))(t)
			must(to.tenant(t, "acme").Append(ctx, "a", event.Exact(2), happened))(t)
			to.run(t)
			found := `select cast(count(*) as text) from {tenant}.search where $1 <> ''`
			if to.file != nil {
				found = `select cast(count(*) as text) from search where ?1 <> ''`
			}
			if got := append(to.totals(t), to.column(t, found, "acme")...); strings.Join(got, " ") != "3 3" ||
				sent != 3 {
				t.Errorf("totals and found %q, sent %d, want 3 each", got, sent)
			}
		})
	}
}
