package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// newRoles runs docs/roles.sql in a new database, after before. It returns the store of the role that migrates and a
// bundle with that of the role that runs.
func newRoles(t *testing.T, before func(admin *bundle)) (owner *pgstore.Store, b *bundle) {
	t.Helper()
	admin := newBundle(t, pgtest.Database(t))
	admin.Ctx = context.WithoutCancel(t.Context())
	admin.use(admin.open(admin.dsn, nil, pgstore.Options{}))
	before(admin)
	ownerDSN, appDSN := kit.RolesOf(t, admin.dsn)
	b = newBundle(t, appDSN)
	owner = b.open(ownerDSN, nil, pgstore.Options{})
	b.Must(owner.Migrate(b.Ctx))
	b.Must(kit.PgStore{Store: owner}.Prepare(b.Ctx))
	b.use(b.open(b.dsn, nil, pgstore.Options{}))
	return owner, b
}

// onRoles runs a test of a page with one role, and with those of docs/roles.sql. The store of the role that migrates is
// owner, and that of the role that runs is the bundle's. The owner makes these tables.
func onRoles(t *testing.T, test func(t *testing.T, owner *pgstore.Store, b *bundle), tables ...string) {
	t.Parallel()
	ready := func(t *testing.T, owner *pgstore.Store, b *bundle) {
		for _, sql := range tables {
			_, err := owner.Pool().Exec(b.Ctx, sql)
			b.Must(err)
		}
		test(t, owner, b)
	}
	t.Run("one role", func(t *testing.T) {
		t.Parallel()
		b := setup(t, pgstore.Options{})
		ready(t, b.store, b)
	})
	t.Run("two roles", func(t *testing.T) {
		t.Parallel()
		owner, b := newRoles(t, func(*bundle) {})
		ready(t, owner, b)
	})
}

// rolesMade are what a database holds when docs/roles.sql is run.
var rolesMade = map[string]func(admin *bundle){
	"in an empty database": func(*bundle) {},
	"in a database with tenants": func(admin *bundle) {
		admin.Must(admin.store.Migrate(admin.Ctx))
		_, err := admin.store.CreateTenant(admin.Ctx, "early")
		admin.Must(err)
	},
}

// TestVictim kills its process in the third batch.
func TestVictim(t *testing.T) {
	b, _ := kit.Victim(t)
	batches := 0
	b.RunUntilIdle(b.Runtime(kit.Quick, millrace.Projection{Name: "p",
		MaxEvents: 10, Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			batches++
			if batches == 3 {
				kit.Die()
			}
			return tx.Record(ctx, "p", events...)
		})}))
}

func TestRuntimeWorksInFullUnderTheRoleThatRuns(t *testing.T) {
	t.Parallel()
	for name, prepare := range rolesMade {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, b := newRoles(t, prepare)
			if err := b.store.Migrate(b.Ctx); err != nil {
				t.Errorf("Migrate with nothing to do: %v", err)
			}
			b.mustAppendInEveryWay("default")
			b.Append("a", 40)
			b.Kill("in a batch")
			b.mustRunWithPoison()
			_, err := owner.CreateTenant(b.Ctx, "later")
			b.Must(err)
			b.mustAppendInEveryWay("later")
			b.mustRunForAnotherTenant("later")
		})
	}
}

// mustAppendInEveryWay appends with and without keys, in transactions and after conflicts, and reads.
func (b *bundle) mustAppendInEveryWay(name string) {
	b.T.Helper()
	tenant, err := b.store.ForTenant(name)
	b.Must(err)
	e := event.Event{Type: "counted", Headers: map[string]string{"a": "b"}}
	for range 2 { // the second time each is a repeat or a conflict
		for _, expected := range []event.Expected{event.Any, event.NoStream, event.Exact(1),
			event.NoStream.WithKey("k"), event.Any.WithKey("l")} {
			_, err := tenant.Append(b.Ctx, "s", expected, e)
			if err != nil && !errors.Is(err, event.ErrVersionConflict) {
				b.T.Errorf("%v: %v", expected, err)
			}
		}
	}
	err = tenant.InTx(b.Ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tenant.AppendTx(ctx, tx, "t", event.NoStream, e); err != nil {
			return err
		}
		_, err := tenant.AppendTx(ctx, tx, "u", event.NoStream.WithKey("m"), e)
		return err
	})
	if err != nil {
		b.T.Errorf("InTx: %v", err)
	}
	for _, err := range tenant.ReadStream(b.Ctx, "s", 1) {
		if err != nil {
			b.T.Error(err)
		}
	}
	for _, err := range tenant.ReadAll(b.Ctx, event.ReadOptions{}) {
		if err != nil {
			b.T.Error(err)
		}
	}
}

// mustRunWithPoison takes over from the node that died, parks, replays, discards, pauses, stops and moves leases.
func (b *bundle) mustRunWithPoison() {
	b.T.Helper()
	id := millrace.ProjectionID{Name: "p"}
	var mended atomic.Bool
	poison := b.Append("poison", 3).Positions
	p := millrace.Projection{Name: "p", Retry: kit.Soon(1), MaxFailureShare: projection.NoLimit,
		OnFailure: projection.ActionParkStream, Handler: b.Store.Batch(kit.FailsAt("p",
			func(position int64) bool { return !mended.Load() && slices.Contains(poison, position) },
			func(_ context.Context, _ kit.Tx, _ int, position int64) error {
				return projection.At(position, kit.ErrOnPurpose)
			}))}
	delivered := millrace.Projection{Name: "d", Handler: millrace.DeliverEach(kit.Freely)}
	b.RunUntilIdle(b.Runtime(kit.Quick, p, delivered))
	b.Verify("p", poison...)

	first, second := b.Runtime(kit.Quick, p, delivered), b.Another(kit.Quick, p, delivered)
	b.Start(first)
	stop := b.Start(second)
	b.Eventually("two nodes share all", func() bool {
		held, _ := b.Owners(first)
		return len(held) == 2
	})
	mended.Store(true)
	letters := b.Store.DeadLetters(id)
	if o, err := letters.Replay(b.Ctx, projection.DeadLetterFilter{Stream: "poison"}, 1); err != nil || o.Done != 1 {
		b.T.Errorf("replay: %+v, %v", o, err)
	}
	if o, err := letters.Discard(b.Ctx, projection.DeadLetterFilter{All: true}, 10); err != nil || o.Done != 2 {
		b.T.Errorf("discard: %+v, %v", o, err)
	}
	if n, err := letters.Purge(b.Ctx, projection.DeadLetterFilter{All: true}, 0, 10); err != nil || n != 3 {
		b.T.Errorf("purge: %d, %v", n, err)
	}
	stop()
	b.Pause(first, "p")
	b.Resume(first, "p")
	b.Must(first.PauseTenant(b.Ctx, projection.DefaultTenant))
	b.Must(first.ResumeTenant(b.Ctx, projection.DefaultTenant))
	last := b.Append("a", 10).Positions[9]
	for _, name := range []string{"p", "d"} {
		b.Reaches(first, name, last)
	}
	b.Verify("p", poison[1:]...)
	if summary, err := first.Summary(b.Ctx); err != nil || !summary.Session.Connected || summary.NotOwned > 0 {
		b.T.Errorf("summary: %+v, %v", summary, err)
	}
}

// mustRunForAnotherTenant runs a projection for a tenant, which then has handled everything.
func (b *bundle) mustRunForAnotherTenant(tenant string) {
	b.T.Helper()
	var handled atomic.Int64
	rt := b.Runtime(millrace.Config{Tenants: []string{tenant}},
		millrace.Projection{Name: "count", Handler: b.Store.Each(func(context.Context, kit.Tx, event.Envelope) error {
			handled.Add(1)
			return nil
		})})
	if _, err := rt.RunUntilIdle(b.Ctx); err != nil || handled.Load() == 0 {
		b.T.Errorf("tenant %s: %d events handled, %v", tenant, handled.Load(), err)
	}
}

func TestRoleThatRunsCanNeitherChangeSchemasNorEvents(t *testing.T) {
	t.Parallel()
	for name, prepare := range rolesMade {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, b := newRoles(t, prepare)
			_, err := owner.CreateTenant(b.Ctx, "later")
			b.Must(err)
			for _, sql := range b.forbidden() {
				err := pgx.BeginFunc(b.Ctx, b.store.Pool(), func(tx pgx.Tx) error {
					_, err := tx.Exec(b.Ctx, sql, pgx.QueryExecModeExec)
					return err
				})
				var pgErr *pgconn.PgError
				if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
					t.Errorf("%s: error %v", sql, err)
				}
			}
			_, err = b.store.CreateTenant(b.Ctx, "mine")
			if err == nil || !strings.Contains(err.Error(), "may not create schemas in database") {
				t.Errorf("CreateTenant: %v", err)
			}
		})
	}
}

// forbidden are statements on everything that millrace has made.
func (b *bundle) forbidden() (statements []string) {
	b.T.Helper()
	rows, err := b.store.Pool().Query(b.Ctx, `
		with ours as (select oid, nspname from pg_namespace where nspname = 'millrace' or nspname in (select schema_name from millrace.tenants)),
		tables as (select format('%I.%I', nspname, relname) as name, relname, nspname from pg_class join ours on ours.oid = relnamespace where relkind = 'r')
		select format(sql, name) from tables, unnest(array['drop table %s', 'truncate %s', 'alter table %s add mine int',
			'alter table %s disable trigger all', 'create index on %s ((1))', 'alter table %s owner to current_user',
			'create trigger mine before insert on %s for each row execute function suppress_redundant_updates_trigger()']) as sql
		union all select format(sql, name) from tables, unnest(array['update %s set type = type', 'delete from %s', 'lock table %s in exclusive mode']) as sql
		 where relname = 'events'
		union all select format(sql, name) from tables, unnest(array['delete from %s', 'update %s set version = version']) as sql
		 where relname in ('tenants', 'schema_versions') and nspname = 'millrace'
		union all select 'insert into millrace.tenants values (''mine'', ''public'', 1)'
		union all select 'update millrace.tenants set state = ''archived'''
		union all select 'insert into millrace.schema_versions values (99, ''mine'')'
		union all select format(sql, nspname) from ours, unnest(array['drop schema %I cascade', 'create table %I.mine (n int)',
			'create function %I.mine() returns int language sql as ''select 1''', 'alter schema %I rename to mine']) as sql
		union all select format('drop function %s', p.oid::regprocedure) from pg_proc p join ours on ours.oid = pronamespace
		union all select 'create schema mine'
		union all select 'create table public.mine (n int)'`)
	b.Must(err)
	statements, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(statements) < 100 {
		b.T.Fatalf("%d statements, %v", len(statements), err)
	}
	return statements
}

// Row-level security hides rows without an error. A projection whose row is hidden would stand still as if it did not
// exist.
func TestOpenRefusesHiddenRows(t *testing.T) {
	t.Parallel()
	owner, b := newRoles(t, func(*bundle) {})
	tenant, err := owner.CreateTenant(b.Ctx, "acme")
	b.Must(err)
	for _, table := range []string{"millrace.leases", tenant.EventsSchema() + ".events"} {
		for _, step := range []struct{ sql, refused string }{
			{"alter table " + table + " enable row level security", "row-level security hides rows of " + table},
			{"create policy whole on " + table + " using (true)", ""},
			{
				"create policy part on " + table +
					" as restrictive using (false)", "row-level security hides rows of " + table,
			},
			{"alter table " + table + " disable row level security", ""},
		} {
			_, err := owner.Pool().Exec(b.Ctx, step.sql)
			b.Must(err)
			store, err := pgstore.Open(b.Ctx, b.dsn, pgstore.Options{})
			if err == nil {
				store.Close()
			}
			if (err != nil) != (step.refused != "") || err != nil && !strings.Contains(err.Error(), step.refused) {
				t.Errorf("after %q: error %v, want one with %q", step.sql, err, step.refused)
			}
		}
	}
}
