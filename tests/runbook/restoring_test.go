package runbook_test

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"sync/atomic"
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

// TestRestoringOneTenant follows docs/restoring.md, with one role and with two.
func TestRestoringOneTenant(t *testing.T) {
	if _, err := commandLine(); err != nil {
		t.Fatal(err)
	}
	page := entry{title: "restoring"}
	for _, e := range readEntries(t, "../../docs/restoring.md") {
		page.blocks = append(page.blocks, slices.DeleteFunc(e.blocks,
			func(b block) bool { return b.language != "console" })...)
	}
	onRestoring(t, page, func(r *restoring) {
		r.restore()
		if left := r.entry.blocks[r.next:]; len(left) > 0 {
			r.Errorf("the test does not run %+v", left)
		}
	})
}

// onRestoring runs a test with one role, and with those of docs/roles.sql.
func onRestoring(t *testing.T, page entry, test func(r *restoring)) {
	for name, roles := range map[string]func(s *scenario) (owner, app string){
		"one role":  func(s *scenario) (owner, app string) { return s.dsn, s.dsn },
		"two roles": func(s *scenario) (owner, app string) { return kit.RolesOf(s.T, s.dsn) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScenario(t, page)
			s.dsn = pgtest.Database(s)
			test(newRestoring(s, roles))
		})
	}
}

// restoring is the service whose tenant acme is restored. Its read model totals is in the schema of the tenant, and
// search elsewhere.
type restoring struct {
	*scenario
	sent atomic.Int64
}

func newRestoring(s *scenario, roles func(s *scenario) (owner, app string)) *restoring {
	s.Helper()
	r := &restoring{scenario: s}
	s.superuser = s.dsn
	owner, app := roles(s)
	steps := pgstore.Options{
		TenantSetup: []pgstore.TenantStep{
			pgstore.TenantSQL("create table totals (stream text primary key, n bigint not null)"),
		},
	}
	migrating := s.opened(owner, steps)
	s.must(migrating.Migrate(s.ctx))
	_, err := migrating.CreateTenant(s.ctx, "acme")
	s.must(err)
	_, err = migrating.Pool().Exec(s.ctx,
		"create table public.search (tenant text, stream text, n bigint not null, primary key (tenant, stream))")
	s.must(err)
	s.dsn, s.store = app, s.opened(app, steps)
	scratch := "scratch_" + s.databaseName()
	s.call("scratch", scratch)
	address, err := pgtest.WithDatabase(r.superuser, scratch)
	s.must(err)
	s.env = []string{"SUPERUSER_URL=" + r.superuser, "SCRATCH_URL=" + address}
	return r
}

// databaseName returns the name of the test's database.
func (s *scenario) databaseName() string {
	s.Helper()
	u, err := url.Parse(s.dsn)
	s.must(err)
	return u.Path[1:]
}

func (r *restoring) projections() []millrace.Projection {
	into := func(sql string) millrace.Handler {
		return pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
			_, err := tx.Exec(ctx, sql, e.Stream)
			return err
		})
	}
	return []millrace.Projection{
		{
			Name:    "totals",
			Handler: into("insert into totals values ($1, 1) on conflict (stream) do update set n = totals.n + 1"),
		},
		{Name: "search",
			Handler: into("insert into public.search values ('acme', $1, 1) on conflict (tenant, stream) do update set n = search.n + 1"),
			Reset: pgstore.Hook(func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "delete from public.search where tenant = 'acme'")
				return err
			})},
		{Name: "mails", Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
			r.sent.Add(1)
			return nil
		})},
	}
}

// restore makes a backup while totals lags, and restores it after two more events.
func (r *restoring) restore() {
	config := soon("shop-1")
	config.Tenants = []string{"acme"}
	r.node(config, r.projections()...)
	all := func(position int64, names ...string) {
		r.Helper()
		for _, name := range names {
			r.reachesAs(millrace.ProjectionID{Tenant: "acme", Name: name}, position)
		}
	}
	totals := millrace.ProjectionID{Tenant: "acme", Name: "totals"}
	r.append("acme", "OrderPlaced", "OrderPaid")
	all(2, "totals", "search", "mails")
	r.must(r.admin().Pause(r.ctx, totals))
	r.append("acme", "OrderSent")
	all(3, "search", "mails")
	r.follow() // the backup
	r.must(r.admin().Resume(r.ctx, totals))
	r.append("acme", "OrderReturned", "OrderRefunded")
	all(5, "totals", "search", "mails")
	for r.next < len(r.entry.blocks) {
		r.follow()
	}
	r.append("acme", "OrderCancelled")
	all(4, "totals", "search", "mails")
	r.check()
}

// check checks the read models, and that the role that runs has no rights that the restore gave to it.
func (r *restoring) check() {
	r.Helper()
	conn, err := pgx.Connect(r.ctx, r.superuser)
	r.must(err)
	defer func() { _ = conn.Close(r.ctx) }()
	var counted, searched int64
	var free bool
	r.must(conn.QueryRow(r.ctx,
		"select (select n from millrace_acme.totals), (select n from public.search)").Scan(&counted, &searched))
	if counted != 4 || searched != 4 || r.sent.Load() != 6 {
		r.Errorf("4 events are counted %d and %d times, and 6 were sent %d times", counted, searched, r.sent.Load())
	}
	var app string
	r.must(r.store.Pool().QueryRow(r.ctx,
		"select current_user, not current_setting('is_superuser')::boolean and has_table_privilege('millrace_acme.events', 'update')").Scan(&app, &free))
	if free {
		r.Errorf("%s may change events", app)
	}
}

// recovers is the function of docs/restoring.md.
func recovers(ctx context.Context, a *admin.Admin, tenant string, rebuild ...string) error {
	restored, err := a.RestoredTenant(ctx, tenant, 0)
	if err != nil {
		return err
	}
	opts := admin.RecoverOptions{End: cmp.Or(restored.End, projection.None), Rebuild: rebuild}
	for _, p := range restored.Projections {
		if !slices.Contains(rebuild, p.ID.Name) {
			opts.Continue = append(opts.Continue, p.ID.Name)
		}
	}
	if _, err := a.RecoverTenant(ctx, tenant, opts); err != nil {
		return err
	}
	return a.ResumeTenant(ctx, tenant)
}

// TestProgramRecoversARestoredTenant pauses a tenant, deletes its last events, and appends others before the recovery.
func TestProgramRecoversARestoredTenant(t *testing.T) {
	t.Parallel()
	onRestoring(t, entry{}, func(r *restoring) {
		r.node(soon("shop-1"), r.projections()...)
		r.append("acme", "OrderPlaced", "OrderPaid", "OrderSent")
		all := func() {
			for _, name := range []string{"totals", "search", "mails"} {
				r.reachesAs(millrace.ProjectionID{Tenant: "acme", Name: name}, 3)
			}
		}
		all()
		r.must(r.admin().PauseTenant(r.ctx, "acme"))
		r.sql("delete from millrace_acme.events where global_seq > 2; alter table millrace_acme.events alter column global_seq restart with 3; update millrace_acme.streams set version = 2")
		r.must(recovers(r.ctx, r.admin(), "acme", "search"))
		r.append("acme", "OrderCancelled")
		all()
		if r.sent.Load() != 4 {
			r.Errorf("4 events were sent %d times", r.sent.Load())
		}
	})
}
