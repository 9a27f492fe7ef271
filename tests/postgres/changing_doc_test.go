package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// totals2, swapAll, swapAsOwner and sums are those of docs/changing.md.

func totals2() millrace.Projection {
	return millrace.Projection{
		Name:    "totals",
		Version: 2,
		Handler: pgstore.Batch(writeTotals2), // writes to totals_2
		Swap:    pgstore.Hook(showTotals2),
		Drop:    pgstore.Hook(dropTotals2),
	}
}

func swapAll(ctx context.Context, a *admin.Admin) error {
	left, err := a.Unswapped(ctx, "totals@2")
	for _, id := range left {
		err = errors.Join(err, a.Swap(ctx, id, admin.SwapOptions{}))
	}
	return err
}

func swapAsOwner(ctx context.Context, ownerDSN string) error {
	store, err := pgstore.Open(ctx, ownerDSN, pgstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	job, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		return err
	}
	if err := job.Register(totals2()); err != nil {
		return err
	}
	return job.Operate(ctx, func(ctx context.Context) error { return swapAll(ctx, job.Admin) })
}

func sums() millrace.Projection {
	return millrace.Projection{Name: "sums", RenamedFrom: "totals", Handler: pgstore.Batch(writeTotals)}
}

// The SQL of docs/changing.md for PostgreSQL.
const (
	viewSQL = "begin;\nalter table totals rename to totals_1;\ncreate view totals as select * from totals_1;\ncommit;\n"
	showSQL = "set local lock_timeout = '2s';\ncreate or replace view totals as select * from totals_2;\n"
	dropSQL = "drop table totals_2;\n"
)

func writeTotals(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
	_, err := tx.Exec(ctx, "update totals set n = n + $1", len(events))
	return err
}

// writeTotals2 counts each event twice, so that readers can tell the versions apart.
func writeTotals2(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
	_, err := tx.Exec(ctx, "update totals_2 set n = n + $1", 2*len(events))
	return err
}

func showTotals2(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, showSQL)
	return err
}

func dropTotals2(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, dropSQL)
	return err
}

// onTotals runs a test of the page with one role, and with two. The owner makes the table of version 1 with three
// events, puts the view in its place, and makes the table of version 2. Under two roles, hooks connect as the owner.
func onTotals(t *testing.T, test func(t *testing.T, owner *pgstore.Store, b *bundle, version1 millrace.Projection)) {
	onRoles(t, func(t *testing.T, owner *pgstore.Store, b *bundle) {
		if owner != b.store {
			b.hooksAs(owner)
		}
		exec := func(sql string) {
			_, err := owner.Pool().Exec(b.Ctx, sql, pgx.QueryExecModeSimpleProtocol)
			b.Must(err)
		}
		version1 := millrace.Projection{Name: "totals", Handler: pgstore.Batch(writeTotals)}
		exec("create table totals as select 0 as n")
		b.Append("order-1", 3)
		b.Idle(version1)
		exec(viewSQL)
		exec("create table totals_2 as select 0 as n")
		test(t, owner, b, version1)
	})
}

// TestChangesOfTheDocument changes a projection by the code and the SQL of docs/changing.md.
func TestChangesOfTheDocument(t *testing.T) {
	sql := sqlOf(t, "changing.md", "## Beside", 6)
	if sql[0] != viewSQL || sql[2] != showSQL || sql[5] != dropSQL {
		t.Errorf("docs/changing.md has other SQL: %q", sql)
	}
	onTotals(t, func(_ *testing.T, _ *pgstore.Store, b *bundle, version1 millrace.Projection) {
		rt := b.Runtime(millrace.Config{}, version1, totals2())
		stop := b.Start(rt)
		b.Reaches(rt, "totals", b.Append("order-1", 1).Positions[0])
		b.mustRead(4)
		b.Must(swapAll(b.Ctx, rt.Admin))
		b.mustRead(8)
		b.Must(swapAll(b.Ctx, rt.Admin))
		b.Reaches(rt, "totals", b.Append("order-1", 1).Positions[0])
		b.mustRead(10)
		stop()
	})
}

func TestVersionIsGivenUpAsTheDocumentShows(t *testing.T) {
	onTotals(t, func(t *testing.T, _ *pgstore.Store, b *bundle, version1 millrace.Projection) {
		rt := b.Runtime(millrace.Config{}, version1, totals2())
		stop := b.Start(rt)
		b.Reaches(rt, "totals@2", b.Head())
		b.Must(rt.DropVersion(b.Ctx, millrace.ProjectionID{Name: "totals@2"}))
		if n := value[int](b, "select count(*) from pg_class where relname = 'totals_2'"); n != 0 {
			t.Error("the table of the version is still there")
		}
		stop()

		b.Append("order-1", 1)
		b.Idle(sums()) // no living node registers totals any more
		if n := value[int](b, "select n from totals"); n != 4 {
			t.Errorf("the renamed projection has counted %d events, want 4", n)
		}
	})
}

// The role that runs owns no view, so that its hook calls a function of the role that migrates.
func TestRoleThatRunsSwapsByTheFunctionOfTheDocument(t *testing.T) {
	t.Parallel()
	owner, b := newRoles(t, func(*bundle) {})
	app := value[string](b, "select current_user::text")
	show := strings.ReplaceAll(sqlOf(t, "changing.md", "## Beside", 6)[4], "millrace_app", app)
	b.Must(owner.InTx(b.Ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "create table totals_1 as select 0 as n; create view totals as select * from totals_1;"+
			"create table totals_2 as select 0 as n; "+show, pgx.QueryExecModeSimpleProtocol)
		return err
	}))
	version1 := millrace.Projection{Name: "totals", Handler: pgstore.Batch(writeTotals)}
	b.Append("order-1", 3)
	b.Idle(version1)
	hook := showSQL
	version2 := totals2()
	version2.Swap = pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, hook)
		return err
	})
	rt := b.Runtime(millrace.Config{}, version1, version2)
	stop := b.Start(rt)
	defer stop()
	b.Reaches(rt, "totals@2", b.Head())
	if err := swapAll(b.Ctx, rt.Admin); err == nil || !strings.Contains(err.Error(), "42501") {
		t.Errorf("a swap by a role that owns no view: %v", err)
	}
	hook = "select show_totals_2()"
	b.Must(swapAll(b.Ctx, rt.Admin))
	if n := value[int](b, "select n from totals"); n != 6 {
		t.Errorf("readers see %d, want 6", n)
	}
}
