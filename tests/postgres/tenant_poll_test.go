package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// TestNodeWithoutNotificationsFollowsTenants runs a node behind a pooler alone, which learns of each change by polling.
func TestNodeWithoutNotificationsFollowsTenants(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	pooler := pgtest.Pooler(t, b.dsn, pgtest.PgBouncerOptions{PoolSize: 5})
	store := b.open(kit.WithSetting(t, pooler.DSN(value[string](b, "select current_database()")), "pool_max_conns", "10"), nil, pgstore.Options{})
	config := millrace.Config{Store: store, PollInterval: 50 * time.Millisecond, ReconcileInterval: 50 * time.Millisecond}
	rt := b.Running(config, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
	control := b.Another(slow, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
	id := millrace.ProjectionID{Tenant: "acme", Name: "p"}
	for range 3 {
		acme, err := b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
		reach := func() { b.T.Helper(); b.ReachesOf(rt, "acme", "p", b.AppendTo(acme, "s", 1)) }
		reach()
		b.Must(control.PauseTenant(b.Ctx, "acme"))
		if err := rt.WaitFor(b.Ctx, id, b.AppendTo(acme, "s", 1)); !errors.Is(err, projection.ErrPaused) {
			t.Errorf("WaitFor: %v", err)
		}
		b.Must(control.ResumeTenant(b.Ctx, "acme"))
		reach()
		b.Must(b.store.ArchiveTenant(b.Ctx, "acme"))
		b.Must(b.store.UnarchiveTenant(b.Ctx, "acme"))
		reach()
		b.Must(b.store.DropTenant(b.Ctx, "acme", "acme", pgstore.DropOptions{}))
	}
	if session := b.Summary(rt).Session; !session.Pooled {
		t.Errorf("session %+v gets notifications", session)
	}
}

// TestDropTakesTheLeasesOfADeadNode has a node whose heartbeats ended while it held the tenant's leases.
func TestDropTakesTheLeasesOfADeadNode(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	_, err := b.Store.CreateTenant(b.Ctx, "acme")
	b.Must(err)
	p := millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)}
	b.RunUntilIdle(b.Runtime(slow, p))
	b.exec("update millrace.leases set owner = gen_random_uuid()")
	b.InTime("the drop ends", func() { b.Must(b.store.DropTenant(b.Ctx, "acme", "acme", pgstore.DropOptions{})) })
}

// A handler that appends to an archived tenant waits until the tenant is back. The event is not parked, and other projections of
// its tenant continue.
func TestHandlerThatAppendsToAnArchivedTenantWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	target, err := b.store.CreateTenant(b.Ctx, "target")
	b.Must(err)
	forward := b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
		_, _, err := target.AppendTx(ctx, pg(tx), e.Stream, event.Any, event.Event{Type: "forwarded"})
		return err
	})
	rt := b.Running(millrace.Config{Tenants: []string{projection.DefaultTenant}},
		millrace.Projection{Name: "forward", Handler: forward}, millrace.Projection{Name: "other", Handler: b.Store.Batch(kit.Nothing)})
	b.Must(b.store.ArchiveTenant(b.Ctx, "target"))
	last := b.Append("s", 3).Positions[2]
	b.Is(rt, "forward", millrace.StateMissingObject)
	if s := b.Status(rt, "forward"); !strings.Contains(s.Reason, projection.ErrTenantArchived.Error()) || s.Parked != 0 || s.Attempts != 0 {
		t.Errorf("status %+v", s)
	}
	b.Reaches(rt, "other", last)
	b.Must(b.store.UnarchiveTenant(b.Ctx, "target"))
	b.Reaches(rt, "forward", last)
	if n := value[int](b, "select count(*) from millrace_target.events"); n != 3 {
		t.Errorf("%d events were forwarded, want 3", n)
	}
}

// A node that serves a single tenant runs on when the tenant is dropped, and serves it when it is created again.
func TestNodeOfADroppedTenantServesItWhenItIsCreatedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	config := slow
	config.Tenants = []string{"acme"}
	acme, err := b.Store.CreateTenant(b.Ctx, "acme")
	b.Must(err)
	rt := b.Running(config, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
	for range 3 {
		b.ReachesOf(rt, "acme", "p", b.AppendTo(acme, "s", 1))
		b.Must(b.store.DropTenant(b.Ctx, "acme", "acme", pgstore.DropOptions{}))
		if n := len(b.StatusOf(rt).Projections); n != 0 {
			t.Errorf("%d projections are left", n)
		}
		_, err = b.Store.CreateTenant(b.Ctx, "acme")
		b.Must(err)
	}
	b.ReachesOf(rt, "acme", "p", b.AppendTo(acme, "s", 1))
}
