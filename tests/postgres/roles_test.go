package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// roles are the two roles of docs/roles.sql, by names of their own: roles are the server's, and tests share it.
type roles struct {
	admin      *pgstore.Store
	owner, app string // DSNs
	appRole    string
}

// makeRoles runs docs/roles.sql in a new database, after before.
func makeRoles(t *testing.T, before func(admin *pgstore.Store)) roles {
	t.Helper()
	dsn := pgtest.Database(t)
	ctx := context.WithoutCancel(t.Context())
	admin, err := pgstore.Open(ctx, dsn, pgstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	raw, err := os.ReadFile("../../docs/roles.sql")
	if err != nil {
		t.Fatal(err)
	}
	suffix := fmt.Sprintf("_%x", rand.Uint64())
	owner, app := "millrace_owner"+suffix, "millrace_app"+suffix
	run := func(sql string) error {
		_, err := admin.Pool().Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	if before != nil {
		before(admin)
	}
	if err := run(strings.NewReplacer("millrace_owner", owner, "millrace_app", app).Replace(string(raw))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, role := range []string{app, owner} {
			if err := run("drop owned by " + role + " cascade; drop role " + role); err != nil {
				t.Error(err)
			}
		}
	})
	if err := run(fmt.Sprintf("alter role %s password 'secret'; alter role %s password 'secret'", owner, app)); err != nil {
		t.Fatal(err)
	}
	as := func(role string) string {
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(role, "secret")
		return u.String()
	}
	return roles{admin: admin, owner: as(owner), app: as(app), appRole: app}
}

// newRoles runs docs/roles.sql in a new database, and returns the store of the role that migrates and a bundle with that of
// the role that runs.
func newRoles(t *testing.T, before func(admin *pgstore.Store)) (owner *pgstore.Store, b *bundle) {
	t.Helper()
	r := makeRoles(t, before)
	b = &bundle{t: t, dsn: r.app}
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	open := func(dsn string) *pgstore.Store {
		store, err := pgstore.Open(b.ctx, dsn, pgstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		return store
	}
	owner = open(r.owner)
	if err := owner.Migrate(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.store = open(r.app)
	if _, err := owner.Pool().Exec(b.ctx, `create table applied (projection text, position bigint, stream text, version bigint, at bigint generated always as identity)`); err != nil {
		t.Fatal(err)
	}
	return owner, b
}

// rolesMade are what a database holds when docs/roles.sql is run.
var rolesMade = map[string]func(t *testing.T) func(admin *pgstore.Store){
	"in an empty database": func(*testing.T) func(*pgstore.Store) { return nil },
	"in a database with tenants": func(t *testing.T) func(*pgstore.Store) {
		return func(admin *pgstore.Store) {
			if err := admin.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := admin.CreateTenant(t.Context(), "early"); err != nil {
				t.Fatal(err)
			}
		}
	},
}

func TestRuntimeWorksInFullUnderTheRoleThatRuns(t *testing.T) {
	t.Parallel()
	for name, prepare := range rolesMade {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, b := newRoles(t, prepare(t))
			if err := b.store.Migrate(b.ctx); err != nil {
				t.Errorf("Migrate with nothing to do: %v", err)
			}
			b.mustAppendInEveryWay("default")
			b.append("a", 40)
			b.kill("in the handler, after its writes")
			b.mustRunWithPoison()
			if _, err := owner.CreateTenant(b.ctx, "later"); err != nil {
				t.Fatal(err)
			}
			b.mustAppendInEveryWay("later")
			b.mustRunForAnotherTenant("later")
		})
	}
}

// mustAppendInEveryWay appends with and without keys, in transactions and after conflicts, and reads.
func (b *bundle) mustAppendInEveryWay(name string) {
	b.t.Helper()
	tenant, err := b.store.ForTenant(name)
	if err != nil {
		b.t.Fatal(err)
	}
	e := event.Event{Type: "counted", Headers: map[string]string{"a": "b"}}
	for range 2 { // the second time each is a repeat or a conflict
		for _, expected := range []event.Expected{event.Any, event.NoStream, event.Exact(1), event.NoStream.WithKey("k"), event.Any.WithKey("l")} {
			_, err := tenant.Append(b.ctx, "s", expected, e)
			if err != nil && !errors.Is(err, event.ErrVersionConflict) {
				b.t.Errorf("%v: %v", expected, err)
			}
		}
	}
	err = tenant.InTx(b.ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, _, err := tenant.AppendTx(ctx, tx, "t", event.NoStream, e); err != nil {
			return err
		}
		_, _, err := tenant.AppendTx(ctx, tx, "u", event.NoStream.WithKey("m"), e)
		return err
	})
	if err != nil {
		b.t.Errorf("InTx: %v", err)
	}
	for _, err := range tenant.ReadStream(b.ctx, "s", 1) {
		if err != nil {
			b.t.Error(err)
		}
	}
	for _, err := range tenant.ReadAll(b.ctx, pgstore.ReadOptions{}) {
		if err != nil {
			b.t.Error(err)
		}
	}
}

// mustRunWithPoison takes over from the node that died, parks, replays, discards, pauses, stops and moves leases.
func (b *bundle) mustRunWithPoison() {
	b.t.Helper()
	id := millrace.ProjectionID{Name: "p"}
	var mended atomic.Bool
	poison := b.append("poison", 3).Positions
	p := millrace.Projection{Name: "p", Retry: soon(1), MaxFailureShare: -1, OnFailure: projection.ActionParkStream, Handler: pgstore.Batch(failsAt("p",
		func(position int64) bool { return !mended.Load() && slices.Contains(poison, position) },
		func(_ context.Context, _ pgx.Tx, _ int, position int64) error {
			return projection.At(position, errOnPurpose)
		}))}
	delivered := millrace.Projection{Name: "d", Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error { return nil })}
	if _, err := b.runtime(quick, p, delivered).RunUntilIdle(b.ctx); err != nil {
		b.t.Fatal(err)
	}
	b.verify("p", poison...)

	first, second := b.runtime(quick, p, delivered), b.another(quick, p, delivered)
	b.start(first)
	stop := b.start(second)
	b.eventually("two nodes share all", func() bool {
		held, _ := b.owners(first)
		return len(held) == 2
	})
	mended.Store(true)
	letters := b.store.DeadLetters(id)
	if o, err := letters.Replay(b.ctx, projection.DeadLetterFilter{Stream: "poison"}, 1); err != nil || o.Done != 1 {
		b.t.Errorf("replay: %+v, %v", o, err)
	}
	if o, err := letters.Discard(b.ctx, projection.DeadLetterFilter{All: true}, 10); err != nil || o.Done != 2 {
		b.t.Errorf("discard: %+v, %v", o, err)
	}
	if n, err := letters.Purge(b.ctx, projection.DeadLetterFilter{All: true}, 0, 10); err != nil || n != 3 {
		b.t.Errorf("purge: %d, %v", n, err)
	}
	stop()
	if err := first.Pause(b.ctx, id); err != nil {
		b.t.Errorf("pause: %v", err)
	}
	if err := first.Resume(b.ctx, id); err != nil {
		b.t.Errorf("resume: %v", err)
	}
	last := b.append("a", 10).Positions[9]
	for _, name := range []string{"p", "d"} {
		if err := first.WaitFor(b.ctx, millrace.ProjectionID{Name: name}, last); err != nil {
			b.t.Error(err)
		}
	}
	b.verify("p", poison[1:]...)
	if status, err := first.Status(b.ctx); err != nil || !status.Session.Connected || status.NotOwned > 0 {
		b.t.Errorf("status: %+v, %v", status, err)
	}
}

// mustRunForAnotherTenant runs a projection for a tenant, which then has handled everything.
func (b *bundle) mustRunForAnotherTenant(tenant string) {
	b.t.Helper()
	var handled atomic.Int64
	rt := b.runtime(millrace.Config{Tenants: []string{tenant}}, millrace.Projection{Name: "count", Handler: pgstore.Each(func(context.Context, pgx.Tx, event.Envelope) error {
		handled.Add(1)
		return nil
	})})
	if _, err := rt.RunUntilIdle(b.ctx); err != nil || handled.Load() == 0 {
		b.t.Errorf("tenant %s: %d events handled, %v", tenant, handled.Load(), err)
	}
}

func TestRoleThatRunsCanNeitherChangeSchemasNorEvents(t *testing.T) {
	t.Parallel()
	for name, prepare := range rolesMade {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, b := newRoles(t, prepare(t))
			if _, err := owner.CreateTenant(b.ctx, "later"); err != nil {
				t.Fatal(err)
			}
			for _, sql := range b.forbidden() {
				err := pgx.BeginFunc(b.ctx, b.store.Pool(), func(tx pgx.Tx) error {
					_, err := tx.Exec(b.ctx, sql, pgx.QueryExecModeExec)
					return err
				})
				var pgErr *pgconn.PgError
				if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
					t.Errorf("%s: error %v", sql, err)
				}
			}
			_, err := b.store.CreateTenant(b.ctx, "mine")
			if err == nil || !strings.Contains(err.Error(), "may not create schemas in database") {
				t.Errorf("CreateTenant: %v", err)
			}
		})
	}
}

// forbidden are statements on everything that millrace has made.
func (b *bundle) forbidden() (statements []string) {
	b.t.Helper()
	rows, err := b.store.Pool().Query(b.ctx, `
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
		union all select 'insert into millrace.schema_versions values (99, ''mine'')'
		union all select format(sql, nspname) from ours, unnest(array['drop schema %I cascade', 'create table %I.mine (n int)',
			'create function %I.mine() returns int language sql as ''select 1''', 'alter schema %I rename to mine']) as sql
		union all select format('drop function %s', p.oid::regprocedure) from pg_proc p join ours on ours.oid = pronamespace
		union all select 'create schema mine'
		union all select 'create table public.mine (n int)'`)
	if err != nil {
		b.t.Fatal(err)
	}
	if statements, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(statements) < 100 {
		b.t.Fatalf("%d statements, %v", len(statements), err)
	}
	return statements
}
