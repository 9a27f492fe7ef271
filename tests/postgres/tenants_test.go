package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// totals is the projection of the README.
var totals = millrace.Projection{Name: "totals", Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
	_, err := tx.Exec(ctx, `insert into totals values ($1, ($2::jsonb ->> 'amount')::numeric)
		on conflict (stream) do update set total = totals.total + excluded.total`, e.Stream, string(e.Body))
	return err
})}

const createTotals = "create table totals (stream text primary key, total numeric)"

func (b *bundle) defaultTenant() *pgstore.Tenant {
	b.T.Helper()
	tenant, err := b.store.ForTenant(projection.DefaultTenant)
	b.Must(err)
	return tenant
}

// orderOf appends an order of a tenant, which is made where it does not exist.
func (b *bundle) orderOf(name, amount string) *pgstore.Tenant {
	b.T.Helper()
	tenant, err := b.store.CreateTenant(b.Ctx, name)
	b.Must(err)
	if _, err := tenant.Append(b.Ctx, "order-1", event.Any, event.Event{Type: "ItemAdded", Body: []byte(`{"amount": ` + amount + `}`)}); err != nil {
		b.T.Fatal(err)
	}
	return tenant
}

// totalOf reads a tenant's read model as the host does.
func (b *bundle) totalOf(tenant *pgstore.Tenant) (total string) {
	b.T.Helper()
	err := tenant.InTx(b.Ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select coalesce(sum(total), 0)::text from totals where stream = 'order-1'").Scan(&total)
	})
	if err != nil {
		b.T.Errorf("%s: %v", tenant.Name(), err)
	}
	return total
}

func TestOrdersOfTwoTenantsDoNotAddUp(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{TenantSetup: []pgstore.TenantStep{pgstore.TenantSQL(createTotals)}}, "pool_max_conns", "2")
	var exists bool
	// A table of that name in public is the default tenant's, by its path, or the host's.
	if err := b.store.Pool().QueryRow(b.Ctx, "select to_regclass('public.totals') is not null").Scan(&exists); err != nil || !exists {
		t.Fatalf("there is no public.totals: %v", err)
	}
	rt := b.Runtime(millrace.Config{}, totals)
	want := map[*pgstore.Tenant]string{b.orderOf("acme", "30.00"): "30.00", b.orderOf("globex", "12.50"): "12.50", b.defaultTenant(): "0"}
	b.RunUntilIdle(rt)
	for tenant, total := range want {
		if got := b.totalOf(tenant); got != total {
			t.Errorf("%s has a total of %s, want %s", tenant.Name(), got, total)
		}
	}
}
