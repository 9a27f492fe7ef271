package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// newTotalsOf makes the tables of docs/changing.md as the role that migrates, and three events that version 1 has
// handled as the role that runs.
func newTotalsOf(t *testing.T) (owner *pgstore.Store, b *bundle, version1 millrace.Projection) {
	t.Helper()
	owner, b = newRoles(t, func(*bundle) {})
	b.Must(owner.InTx(b.Ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "create table totals_1 as select 0 as n; create view totals as select * from totals_1;"+
			"create table totals_2 as select 0 as n", pgx.QueryExecModeSimpleProtocol)
		return err
	}))
	version1 = millrace.Projection{Name: "totals", Handler: pgstore.Batch(writeTotals)}
	b.Append("order-1", 3)
	b.Idle(version1)
	return owner, b, version1
}

// emptied is version 2 with a hook of a rebuild that only the owner of its table may run.
func emptied() millrace.Projection {
	p := totals2()
	p.Reset = pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "truncate totals_2; insert into totals_2 values (0)", pgx.QueryExecModeSimpleProtocol)
		return err
	})
	return p
}

// hooksAs makes the bundle's hooks connect as the role of owner.
func (b *bundle) hooksAs(owner *pgstore.Store) {
	b.T.Helper()
	dsn, err := url.Parse(owner.Pool().Config().ConnString())
	b.Must(err)
	query := dsn.Query()
	query.Set("application_name", "hooks")
	dsn.RawQuery = query.Encode()
	b.use(b.open(b.dsn, nil, pgstore.Options{HookDSN: dsn.String()}))
}

func (b *bundle) mustRead(want int) {
	b.T.Helper()
	if n := value[int](b, "select n from totals"); n != want {
		b.T.Errorf("readers see %d, want %d", n, want)
	}
}

// rebuilds rebuilds version 2 of totals, which then has n events.
func (b *bundle) rebuilds(a *admin.Admin, rt *millrace.Runtime, n int) {
	b.T.Helper()
	b.exec("update totals_2 set n = 1000")
	b.Must(a.Rebuild(b.Ctx, millrace.ProjectionID{Name: "totals@2"}, admin.ResetOptions{}))
	b.Reaches(rt, "totals@2", int64(n))
	b.mustRead(2 * n)
}

// The nodes run as a role that owns no view and no table. A process of the role that owns them carries out the
// operations.
func TestProcessOfTheOwnerCarriesOutOperationsOfNodesThatMayNot(t *testing.T) {
	t.Parallel()
	owner, b, version1 := newTotalsOf(t)
	rt := b.Running(kit.Quick, version1, emptied())
	b.Reaches(rt, "totals@2", b.Head())
	err := swapAll(b.Ctx, rt.Admin)
	if err == nil || !strings.Contains(err.Error(), "42501") ||
		!strings.Contains(err.Error(), "use Options.HookDSN or Runtime.Operate") {
		t.Errorf("a swap by a node: %v", err)
	}
	b.mustRead(3)
	b.Must(swapAsOwner(b.Ctx, owner.Pool().Config().ConnString()))
	b.mustRead(6)
	config := kit.On(kit.Quick, owner)
	job, err := millrace.New(config)
	b.Must(err)
	b.Must(job.Register(emptied()))
	b.Must(job.Operate(b.Ctx, func(context.Context) error {
		for range 5 { // the nodes have no chance to be first
			b.rebuilds(job.Admin, rt, 3)
		}
		return nil
	}))
	b.Reaches(rt, "totals@2", b.Append("order-1", 1).Positions[0])
	b.mustRead(8)
}

// A tenant that signs up after the swaps begins with version 2. The nodes may not run its hook, so the job does.
func TestProcessOfTheOwnerBeginsAVersionInNewTenants(t *testing.T) {
	t.Parallel()
	owner, b, _ := newTotalsOf(t)
	ownerDSN := owner.Pool().Config().ConnString()
	store := b.open(ownerDSN, nil, pgstore.Options{TenantSetup: []pgstore.TenantStep{pgstore.TenantSQL(
		"create table if not exists totals_1 as select 0 as n; create or replace view totals as select * from totals_1; create table if not exists totals_2 as select 0 as n")}})
	rt := b.Running(kit.Quick, totals2(), millrace.Projection{Name: "p",
		Handler: pgstore.Each(func(context.Context, pgx.Tx, event.Envelope) error { return nil })})
	b.Reaches(rt, "totals@2", b.Head())
	b.Must(swapAsOwner(b.Ctx, ownerDSN))
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("new_%d", i))
	}
	for _, name := range names {
		tenant, err := kit.PgStore{Store: store}.CreateTenant(b.Ctx, name)
		b.Must(err)
		b.ReachesOf(rt, name, "p", b.AppendTo(tenant, "order-1", 2))
	}
	begun := "select count(*)::int from millrace.projections where name = 'totals@2' and tenant like 'new%'"
	if n := value[int](b, begun); n != 0 {
		t.Errorf("%d tenants have version 2 before the job", n)
	}
	says := func(problems ...string) bool {
		return slices.ContainsFunc(problems, func(p string) bool {
			return strings.Contains(p, "do not move although events wait: 30, the first new_") &&
				strings.Contains(p, "/totals@2 for ") && strings.Contains(p, "cannot begin with it")
		})
	}
	found := func() (problems []string) {
		summary, err := rt.Summary(b.Ctx)
		b.Must(err)
		for _, f := range summary.Findings() {
			problems = append(problems, f.Problem)
		}
		return problems
	}
	b.Eventually("the health names the version", func() bool { return says(rt.Health(b.Ctx).DegradedBy...) })
	b.Eventually("a check names it too", func() bool { return says(found()...) })
	b.Must(swapAsOwner(b.Ctx, ownerDSN))
	if n := value[int](b, begun); n != len(names) {
		t.Errorf("%d of %d tenants have version 2 after the job", n, len(names))
	}
	for _, name := range names {
		b.ReachesOf(rt, name, "totals@2", 2)
		if n := value[int](b, "select n from millrace_"+name+".totals"); n != 4 {
			t.Errorf("readers of %s see %d", name, n)
		}
	}
	b.Eventually("nothing is reported any more",
		func() bool { return len(rt.Health(b.Ctx).DegradedBy) == 0 && !says(found()...) })
}

// The nodes have the DSN of the owner for hooks alone.
func TestHooksOfNodesConnectAsTheOwner(t *testing.T) {
	t.Parallel()
	owner, b, version1 := newTotalsOf(t)
	b.hooksAs(owner)
	rt := b.Running(kit.Quick, version1, emptied())
	b.Reaches(rt, "totals@2", b.Head())
	b.Must(swapAll(b.Ctx, rt.Admin))
	b.mustRead(6)
	b.rebuilds(rt.Admin, rt, 3)
	sessions := "select count(*)::int from pg_stat_activity where usename <> current_user and application_name = 'hooks' and datname = current_database()"
	b.Eventually("no session of the owner is left", func() bool { return value[int](b, sessions) == 0 })
}

// A hook keeps its whole transaction on the connection of the owner: if it ends, nothing of the operation has happened,
// and the hook runs again.
func TestSessionOfAHookThatEndsTakesTheOperationWithIt(t *testing.T) {
	t.Parallel()
	owner, b, version1 := newTotalsOf(t)
	b.hooksAs(owner)
	version2, runs := totals2(), 0
	version2.Swap = pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
		if err := showTotals2(ctx, tx); err != nil {
			return err
		}
		runs++
		if runs == 1 {
			_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return err
		}
		return nil
	})
	rt := b.Running(kit.Quick, version1, version2)
	b.Reaches(rt, "totals@2", b.Head())
	b.Must(swapAll(b.Ctx, rt.Admin))
	if runs != 2 {
		t.Errorf("the hook ran %d times", runs)
	}
	b.mustRead(6)
}

func TestHookDSNIsChecked(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	if _, err := pgstore.Open(b.Ctx, b.dsn, pgstore.Options{HookDSN: "port=x"}); err == nil ||
		!strings.Contains(err.Error(), "Options.HookDSN") {
		t.Errorf("a DSN that cannot be parsed: %v", err)
	}
	pooler := pgtest.Pooler(t, b.dsn, pgtest.PgBouncerOptions{PoolSize: 5})
	config, err := pgx.ParseConfig(b.dsn)
	b.Must(err)
	for dsn, want := range map[string]string{b.dsn: "", "postgres://127.0.0.1:1/none": "hooks cannot connect",
		pooler.DSN(config.Database): "through a pooler"} {
		found, err := pgstore.Diagnose(b.Ctx, b.dsn, pgstore.Options{HookDSN: dsn}, pgstore.DiagnoseOptions{})
		b.Must(err)
		i := slices.IndexFunc(found, func(f projection.Finding) bool { return f.Check == "hook connection" })
		if (i < 0) != (want == "") || i >= 0 && !strings.Contains(found[i].Problem, want) {
			t.Errorf("%s: found %+v, want %q", dsn, found, want)
		}
	}
	b.Idle(b.Rebuildable("p"))
	b.use(b.open(b.dsn, nil, pgstore.Options{HookDSN: pooler.DSN(config.Database)}))
	rt := b.Running(kit.Quick, b.Rebuildable("p"))
	ended := make(chan error, 1)
	go func() { ended <- rt.Rebuild(b.Ctx, millrace.ProjectionID{Name: "p"}, admin.ResetOptions{}) }()
	b.Eventually("the operation says why it does not end", func() bool {
		o := b.Status(rt, "p").Operation
		return o != nil && strings.Contains(o.Error, "Options.HookDSN leads to a pooler in transaction mode")
	})
	b.Must(rt.CancelOperation(b.Ctx, millrace.ProjectionID{Name: "p"}))
	if err := <-ended; !errors.Is(err, projection.ErrOperationCancelled) {
		t.Errorf("a rebuild that was cancelled: %v", err)
	}
}

// A connection to another store would run the hook there, and could end that store's operation.
func TestHookDSNOfAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	b, other := setup(t, pgstore.Options{}), setup(t, pgstore.Options{})
	b.Idle(b.Rebuildable("p"))
	b.use(b.open(b.dsn, nil, pgstore.Options{HookDSN: other.dsn}))
	rt := b.Running(kit.Quick, b.Rebuildable("p"))
	ended := make(chan error, 1)
	go func() { ended <- rt.Rebuild(b.Ctx, millrace.ProjectionID{Name: "p"}, admin.ResetOptions{}) }()
	b.Eventually("the operation says why it does not end", func() bool {
		o := b.Status(rt, "p").Operation
		return o != nil && strings.Contains(o.Error, "Options.HookDSN leads to another database")
	})
	b.Must(rt.CancelOperation(b.Ctx, millrace.ProjectionID{Name: "p"}))
	if err := <-ended; !errors.Is(err, projection.ErrOperationCancelled) {
		t.Errorf("a rebuild that was cancelled: %v", err)
	}
}

// A tenant whose hook cannot connect waits alone.
func TestTenantsDoNotWaitForAHookThatCannotConnect(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.use(b.open(b.dsn, nil, pgstore.Options{HookDSN: "postgres://127.0.0.1:1/none"}))
	begins := b.Rebuildable("begins")
	begins.Version, begins.Tenants = 2, []string{projection.DefaultTenant}
	begins.Swap = pgstore.Hook(func(context.Context, pgx.Tx) error { return nil })
	begins.Drop = begins.Swap
	rt := b.Running(kit.Quick, begins, b.Rebuildable("p"))
	b.Is(rt, "p", admin.StateLive)
	later, err := b.Store.CreateTenant(b.Ctx, "later")
	b.Must(err)
	b.ReachesOf(rt, "later", "p", b.AppendTo(later, "s", 1))
}
