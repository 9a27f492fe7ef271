package moves_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
	"github.com/millrace-go/millrace/tenancy"
)

// onDatabases runs a test for the directions from PostgreSQL to another database or a file.
func onDatabases(t *testing.T, fn func(t *testing.T, from, to *place)) {
	t.Helper()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		if from.pg == nil || to.path == from.path {
			t.Skip("the other directions show it")
		}
		fn(t, from, to)
	})
}

// waits waits until n sessions of a database wait for locks.
func (p *place) waits(t *testing.T, n int) {
	t.Helper()
	p.until(t,
		`select count(*)::text from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and $1 <> ''`, fmt.Sprint(n))
}

// until waits until a query has that result.
func (p *place) until(t *testing.T, query, want string) {
	t.Helper()
	ctx := testContext(t)
	for !slices.Equal(p.column(t, query, "acme"), []string{want}) {
		noError(t, ctx.Err())
	}
}

// hook returns a hook of the store that does not use its transaction.
func (p *place) hook(fn func() error) millrace.Hook {
	if p.file != nil {
		return sqlitestore.Hook(func(context.Context, *sql.Tx) error { return fn() })
	}
	return pgstore.Hook(func(context.Context, pgx.Tx) error { return fn() })
}

// Two calls move a tenant to the same target at once. One moves it, and the other says that it has moved.
func TestTwoMovesAtOnceMoveTheTenantOnce(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		must(from.create(t, "acme").Append(testContext(t), "s", event.NoStream, happened))(t)
		var both sync.WaitGroup
		reports := make([]admin.MoveReport, 2)
		for i := range reports {
			both.Go(func() { reports[i] = moveIt(t, from, to, "acme", keep()) })
		}
		both.Wait()
		if reports[0].Earlier == reports[1].Earlier {
			t.Errorf("%+v", reports)
		}
		to.mustBe(t, "acme", tenancy.Active)
		from.mustBe(t, "acme", tenancy.Archived)
	})
}

// The tenant is archived after the call has seen it active. It moves as an archived one.
func TestTenantThatIsArchivedMeanwhileMovesAsArchived(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened))(t)
		held := must(from.pg.Pool().Begin(ctx))(t)
		must(held.Exec(ctx, from.filled(`select from {control}.tenants where tenant = 'acme' for update`)))(t)
		var both sync.WaitGroup
		both.Go(func() { noError(t, from.pg.ArchiveTenant(ctx, "acme")) })
		from.waits(t, 1)
		both.Go(func() {
			if report := moveIt(t, from, to, "acme", keep()); report.State != tenancy.Archived {
				t.Errorf("report %+v", report)
			}
		})
		from.waits(t, 2)
		noError(t, held.Rollback(ctx))
		both.Wait()
		to.mustBe(t, "acme", tenancy.Archived)
	})
}

// The call is cancelled while a projection of the source stops.
func TestCancelledMoveLeavesTheTenantActive(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, from, to *place) {
		ctx, cancel := context.WithCancel(testContext(t))
		defer cancel()
		acme := from.create(t, "acme")
		reached, open := make(chan struct{}), make(chan struct{})
		handler := pgstore.Each(func(context.Context, pgx.Tx, event.Envelope) error {
			close(reached)
			<-open
			return nil
		})
		rt := must(millrace.New(millrace.Config{Store: from}))(t)
		noError(t, rt.Register(millrace.Projection{Name: "plain", Handler: handler, Tenants: []string{"acme"}}))
		run(t, rt)
		must(acme.Append(ctx, "s", event.NoStream, happened))(t)
		<-reached
		ended := make(chan error)
		go func() { _, err := admin.MoveTenant(ctx, from, to, "acme", keep()); ended <- err }()
		from.until(t, `select state from {control}.tenants where tenant = $1`, string(tenancy.Archived))
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(open)
		from.mustBe(t, "acme", tenancy.Active)
	})
}

// The session of the source ends while read models move. Nothing locks the tenant there any more.
func TestLossOfTheSourceEndsAMove(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, from, to *place) {
		must(from.create(t, "acme").Append(testContext(t), "s", event.NoStream, happened))(t)
		opts := keep()
		lose := func() error {
			lost := from.column(t, `select pg_terminate_backend(pid)::text from pg_stat_activity
				where datname = current_database() and state = 'idle in transaction' and $1 <> ''`, "acme")
			if !slices.Equal(lost, []string{"true"}) {
				t.Errorf("%d sessions ended", len(lost))
			}
			return nil
		}
		opts.ReadModels = to.hook(lose)
		if _, err := admin.MoveTenant(testContext(t), from, to, "acme", opts); err == nil {
			t.Error("it moved, although the source was not locked")
		}
		to.mustLack(t, "acme")
		from.mustBe(t, "acme", tenancy.Active)
	})
}

// Tenants move between two files, half of them each way, at once. A move holds the writers of both.
func TestMovesInBothDirectionsAtOnceEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(testContext(t), time.Minute)
	defer cancel()
	from, to := newFile(t), newFile(t)
	var all sync.WaitGroup
	move := func(from, to *place, tenant string) {
		all.Go(func() { must(admin.MoveTenant(ctx, from, to, tenant, keep()))(t) })
	}
	for n := range 5 {
		from.create(t, fmt.Sprint("a", n))
		to.create(t, fmt.Sprint("b", n))
	}
	for n := range 5 {
		move(from, to, fmt.Sprint("a", n))
		move(to, from, fmt.Sprint("b", n))
	}
	all.Wait()
}

// The move waits for an open append, and moves its event. Later appends are refused, also in transactions that began
// before the move.
func TestOpenAppendIsMoved(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		from.create(t, "acme")
		acme := must(from.pg.ForTenant("acme"))(t)
		early, open := must(from.pg.Pool().Begin(ctx))(t), must(from.pg.Pool().Begin(ctx))(t)
		must(early.Exec(ctx, "select 1"))(t)
		_, err := acme.AppendTx(ctx, open, "s", event.NoStream.WithKey("k"), happened)
		noError(t, err)
		var move sync.WaitGroup
		move.Go(func() { moveIt(t, from, to, "acme", keep()) })
		from.waits(t, 1)
		noError(t, open.Commit(ctx))
		move.Wait()
		_, err = acme.AppendTx(ctx, early, "s", event.Any, happened)
		if !errors.Is(err, tenancy.ErrArchived) {
			t.Error(err)
		}
		noError(t, early.Rollback(ctx))
		if rows := to.contents(t, "acme"); len(rows["events"]) != 1 || len(rows["keys"]) != 1 {
			t.Error(rows)
		}
	})
}

// Nodes run on both stores. The tenant goes there and back again and again, and is dropped where it was.
func TestTenantMovesThereAndBack(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		from.create(t, "acme")
		var h handled
		nodes := h.runBoth(t, from, to)
		a, b, last := from, to, int64(0)
		for round := range 4 {
			key := event.Any.WithKey(fmt.Sprint("k", round))
			must(a.tenant(t, "acme").Append(ctx, "s0", event.Any, happened, happened))(t)
			last = must(a.tenant(t, "acme").Append(ctx, "s1", key, happened))(t).Positions[0]
			noError(t, nodes[a].WaitFor(ctx, millrace.ProjectionID{Tenant: "acme", Name: "plain"}, last))
			moveIt(t, a, b, "acme", keep())
			a.drop(t, "acme")
			a, b = b, a
			if again := must(a.tenant(t, "acme").Append(ctx, "s1", key, happened))(t); again.Positions[0] != last {
				t.Errorf("repeated at %v, last %d", again.Positions, last)
			}
		}
		last = must(a.tenant(t, "acme").Append(ctx, "s0", event.Any, happened))(t).Positions[0]
		h.mustHandle(t, nodes[a], last)
	})
}
