package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore/internal/ownerlock"
	"github.com/millrace-go/millrace/tenancy"
)

// addProjection inserts a projection of a tenant with a lease of that owner, none if it is empty, and returns its row.
func addProjection(t testing.TB, store *Store, tenant, name, owner string) int32 {
	t.Helper()
	mustExec(t, store, `insert into millrace_projections (tenant, name, token, tenant_suspended)
		select id, ?2, 'token', state <> 'active' or paused from millrace_tenants where name = ?1`, tenant, name)
	row := one[int32](t, store, "select max(id) from millrace_projections")
	mustExec(t, store, "insert into millrace_leases (id, owner, epoch) values (?1, nullif(?2, ''), 1)", row, owner)
	return row
}

// living makes a node that owns the file until the test ends, and returns its id.
func living(t testing.TB, store *Store) string {
	t.Helper()
	id := uuid.NewString()
	lock := must(ownerlock.Acquire(store.path))(t)
	t.Cleanup(func() { noError(t, lock.Release()) })
	mustExec(t, store,
		"insert into millrace_nodes (id, projections, tenants, filters, started_at) values (?1, '[]', '[]', '{}', 0)",
		id)
	return id
}

func TestSuspensionEndsWhenAllLeasesAreFree(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, port, tenant := testContext(t), store.port(), projection.DefaultTenant
	owner := living(t, store)
	rows := []int32{
		addProjection(t, store, tenant, "a", uuid.NewString()), addProjection(t, store, tenant, "b", owner),
		addProjection(t, store, tenant, "c", ""),
	}
	newTenant(t, store, "other")
	other := addProjection(t, store, "other", "a", uuid.NewString())
	if _, err := port.store.plane().SuspensionEnded(ctx, tenant); !errors.Is(err, projection.ErrResumed) {
		t.Errorf("a tenant that runs: %v", err)
	}
	if _, err := port.store.plane().SuspensionEnded(ctx, "none"); !errors.Is(err, tenancy.ErrUnknown) {
		t.Errorf("a tenant that does not exist: %v", err)
	}
	ended := func() bool { return must(port.store.plane().SuspensionEnded(ctx, tenant))(t) }
	suspended := func() int {
		return one[int](t, store, "select count(*) from millrace_projections where suspended")
	}
	noError(t, port.store.plane().SetTenantDesired(ctx, tenant, engine.WantPause))
	if ended() {
		t.Error("it ended while a lease is held")
	}
	if n := suspended(); n != len(rows) {
		t.Errorf("%d projections are suspended, want %d", n, len(rows))
	}
	lease := func(row int32) (owner string, epoch int64) {
		noError(t, store.DB().QueryRowContext(ctx,
			"select coalesce(owner, ''), epoch from millrace_leases where id = ?1", row).Scan(&owner, &epoch))
		return owner, epoch
	}
	if owner, epoch := lease(rows[0]); owner != "" || epoch != 2 {
		t.Errorf("the lease of a dead owner: %q, epoch %d", owner, epoch)
	}
	if now, epoch := lease(rows[1]); now != owner || epoch != 1 {
		t.Errorf("the lease of the living owner: %q, epoch %d", now, epoch)
	}
	if owner, _ := lease(other); owner == "" {
		t.Error("a lease of another tenant was taken away")
	}
	mustExec(t, store, "update millrace_leases set owner = null where id = ?1", rows[1])
	if !ended() {
		t.Error("it does not end")
	}
	noError(t, port.store.plane().SetTenantDesired(ctx, tenant, engine.WantRun))
	if n := suspended(); n != 0 {
		t.Errorf("%d projections are suspended after the tenant was resumed", n)
	}
}

// Without a process that owns the file, no lease is held, whatever the rows say.
func TestLeasesOfAProcessThatEndedAreFree(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	row := addProjection(t, store, projection.DefaultTenant, "p", "")
	mustExec(t, store,
		"insert into millrace_nodes (id, projections, tenants, filters, started_at) values ('n', '[]', '[]', '{}', 0)")
	mustExec(t, store, "update millrace_leases set owner = 'n' where id = ?1", row)
	noError(t, store.ArchiveTenant(testContext(t), projection.DefaultTenant))
	if n := one[int](t, store, "select crash_count from millrace_leases where owner is null and epoch = 2"); n != 1 {
		t.Errorf("%d crashes", n)
	}
}

func TestArchivingWaitsForTheOwnerAndIsDoneWithoutIt(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	row := addProjection(t, store, projection.DefaultTenant, "p", living(t, store))
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() { done <- store.ArchiveTenant(ctx, projection.DefaultTenant) }()
	state := func() tenancy.State { return must(store.tenant.State(testContext(t)))(t) }
	until(t, "the tenant is archived", func() bool { return state() == tenancy.Archived })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || state() != tenancy.Archived {
		t.Errorf("while the owner has a lease: %v", err)
	}
	go func() { done <- store.ArchiveTenant(testContext(t), projection.DefaultTenant) }()
	mustExec(t, store, "update millrace_leases set owner = null where id = ?1", row)
	noError(t, <-done)
}

// The state is that of the append's own transaction, whenever the append was called.
func TestAppendsThatWaitForAnArchivingAreRefused(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	results := make(chan error, 2)
	noError(t, store.transact(ctx, func(tx *sql.Tx) error {
		for range cap(results) {
			go func() {
				_, err := store.Append(ctx, "s", event.Any, someEvents(1)...)
				results <- err
			}()
		}
		until(t, "the appends wait", func() bool {
			store.writer.mu.Lock()
			defer store.writer.mu.Unlock()
			return len(store.writer.waiting) == cap(results)
		})
		return execute(ctx, tx, "set_tenant_state", projection.DefaultTenant, tenancy.Archived)
	}))
	for range cap(results) {
		if err := <-results; !errors.Is(err, tenancy.ErrArchived) {
			t.Errorf("error %v", err)
		}
	}
	if n := len(all(t, store.tenant)); n > 0 {
		t.Errorf("%d events", n)
	}
}

// The owner of the file learns of each change from its notices.
func TestChangesOfTenantsAreAnnounced(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	for _, change := range []struct {
		what string
		do   func() error
	}{
		{"create", func() error { return store.CreateTenants(ctx, "acme", "acme") }},
		{"pause", func() error { return store.plane().SetTenantDesired(ctx, "acme", engine.WantPause) }},
		{"resume", func() error { return store.plane().SetTenantDesired(ctx, "acme", engine.WantRun) }},
		{"archive", func() error { return store.ArchiveTenant(ctx, "acme") }},
		{"unarchive", func() error { return store.UnarchiveTenant(ctx, "acme") }},
	} {
		mustExec(t, store, "delete from millrace_notices")
		noError(t, change.do())
		if n := one[int](t, store,
			"select count(*) from millrace_notices where tenant = 'acme' and not commanded and not nodes"); n != 1 {
			t.Errorf("%s: %d notices", change.what, n)
		}
	}
	mustExec(t, store, "delete from millrace_notices")
	newTenant(t, store, "acme")
	if n := one[int](t, store, "select count(*) from millrace_notices"); n > 0 {
		t.Errorf("%d notices of a tenant that exists", n)
	}
}

// A tenant that exists takes no number, since there is a last one.
func TestTenantsThatExistTakeNoNumber(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	for range 20 {
		newTenant(t, store, "acme")
		noError(t, store.Migrate(testContext(t)))
	}
	newTenant(t, store, "other")
	if id := one[int](t, store, "select id from millrace_tenants where name = 'other'"); id != 3 {
		t.Errorf("the third tenant has number %d", id)
	}
}
