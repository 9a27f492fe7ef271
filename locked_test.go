package millrace_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// lockEvents locks the events of a tenant as ALTER TABLE does, in a session of its own, until release is called.
func (b *bundle) lockEvents(tenant *pgstore.Tenant) (backend string, release func()) {
	b.t.Helper()
	conn, err := pgx.ConnectConfig(b.ctx, b.store.Pool().Config().ConnConfig)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(b.ctx)) })
	if _, err := conn.Exec(b.ctx, "begin; lock table "+pgx.Identifier{tenant.EventsSchema(), "events"}.Sanitize()+" in access exclusive mode"); err != nil {
		b.t.Fatal(err)
	}
	return fmt.Sprintf("backend %d", conn.PgConn().PID()), func() {
		b.t.Helper()
		if _, err := conn.Exec(b.ctx, "commit"); err != nil {
			b.t.Fatal(err)
		}
	}
}

// slowest is the longest of some times from before an append to its projection. between is called before each.
func (b *bundle) slowest(rt *millrace.Runtime, between func()) (most time.Duration) {
	b.t.Helper()
	for range 30 {
		between()
		began := time.Now()
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, b.append("a", 1).Positions[0]); err != nil {
			b.t.Fatal(err)
		}
		most = max(most, time.Since(began))
	}
	return most
}

func TestLockedTenantKeepsNoOtherWaiting(t *testing.T) {
	b := setup(t, pgstore.Options{}, "pool_max_conns", "4")
	locked := b.tenants(3)[1]
	rt := b.runtime(millrace.Config{PollInterval: 50 * time.Millisecond}, millrace.Projection{Name: "p", Batch: nothing})
	b.start(rt)
	id := millrace.ProjectionID{Tenant: locked.Name(), Name: "p"}
	appendTo := func(tenant *pgstore.Tenant) int64 {
		result, err := tenant.Append(b.ctx, "a", event.Any, event.Event{Type: "counted"})
		if err != nil {
			t.Fatal(err)
		}
		return result.Positions[0]
	}
	if err := rt.WaitFor(b.ctx, id, appendTo(locked)); err != nil {
		t.Fatal(err)
	}
	without := b.slowest(rt, func() {})

	backend, release := b.lockEvents(locked)
	status := func() (millrace.TenantStatus, millrace.ProjectionStatus) {
		status, err := rt.Status(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		tenant := slices.IndexFunc(status.Tenants, func(s millrace.TenantStatus) bool { return s.Tenant == locked.Name() })
		p := slices.IndexFunc(status.Projections, func(s millrace.ProjectionStatus) bool { return s.ID == id })
		return status.Tenants[tenant], status.Projections[p]
	}
	with := b.slowest(rt, func() {
		// The feed of the locked tenant tries to read.
		b.exec("select pg_notify('millrace_wake', $1)", locked.Name())
	})
	t.Logf("%v at most without a locked tenant, %v with one", without, with)
	if with > 10*without+2*time.Second {
		t.Errorf("the latency grew from %v to %v", without, with)
	}
	// What no notification announces is found by polling, though a tenant of the slice is locked.
	b.exec(`insert into millrace_default.streams values ('foreign', 1)`)
	var foreign int64
	if err := b.store.Pool().QueryRow(b.ctx, `insert into millrace_default.events (stream_id, stream_version, type, body)
		values ('foreign', 1, 'counted', '1') returning global_seq`).Scan(&foreign); err != nil {
		t.Fatal(err)
	}
	if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, foreign); err != nil {
		t.Fatal(err)
	}
	tenant, p := status()
	if !strings.Contains(tenant.Reason, backend) || !strings.Contains(p.Reason, backend) || p.State != millrace.StateWaiting {
		t.Errorf("%s is not named: %q, and %s because of %q", backend, tenant.Reason, p.State, p.Reason)
	}
	// A writer's append waits for the lock, and is there afterwards.
	appended := make(chan int64)
	go func() { appended <- appendTo(locked) }()
	release()
	if err := rt.WaitFor(b.ctx, id, <-appended); err != nil {
		t.Fatal(err)
	}
	b.eventually("no reason is left", func() bool {
		tenant, p := status()
		return tenant.Reason == "" && p.Reason == "" && p.State == millrace.StateLive
	})
}

func TestRunUntilIdleWaitsForALockedTenant(t *testing.T) {
	b := setup(t, pgstore.Options{})
	locked := b.tenants(2)[1]
	if _, err := locked.Append(b.ctx, "a", event.Any, event.Event{Type: "counted"}); err != nil {
		t.Fatal(err)
	}
	_, release := b.lockEvents(locked)
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Batch: nothing})
	ended := make(chan error, 1)
	go func() { ended <- rt.RunUntilIdle(b.ctx) }()
	b.eventually("a read waits for the lock", func() bool {
		var waits bool
		err := b.store.Pool().QueryRow(b.ctx, "select exists (select from pg_locks where not granted and mode = 'AccessShareLock')").Scan(&waits)
		return err == nil && waits
	})
	select {
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	default:
	}
	release()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
