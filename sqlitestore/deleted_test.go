package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

// As docs/restoring.md says: a file gives no position twice, so after the last events of a tenant were deleted, its
// checkpoints stay valid.
func TestDeletedEventsOfATenantStopNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	store, err := sqlitestore.Open(ctx, filepath.Join(t.TempDir(), "shop.db"), sqlitestore.Options{})
	must(err)
	defer store.Close()
	must(store.Migrate(ctx))
	acme, err := store.CreateTenant(ctx, "acme")
	must(err)
	appends := func(n int) {
		t.Helper()
		_, err := acme.Append(ctx, "order-1", event.Any,
			slices.Repeat([]event.Event{event.Untyped("OrderPaid", nil)}, n)...)
		must(err)
	}
	var handled []int64
	rt, err := millrace.New(millrace.Config{Store: store})
	must(err)
	must(rt.Register(millrace.Projection{Name: "totals", Tenants: []string{"acme"},
		Handler: sqlitestore.Each(func(_ context.Context, _ *sql.Tx, e event.Envelope) error {
			handled = append(handled, e.Position)
			return nil
		})}))
	appends(5)
	_, err = rt.RunUntilIdle(ctx)
	must(err)
	must(store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx,
			"delete from millrace_events where position > 3 and tenant = (select id from millrace_tenants where name = 'acme')")
		return err
	}))
	appends(2)
	_, err = rt.RunUntilIdle(ctx)
	must(err)
	if !slices.Equal(handled, []int64{1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("handled %v", handled)
	}
	restored, err := rt.RestoredTenant(ctx, "acme", 0)
	must(err)
	if p := restored.Projections[0]; restored.End != 7 || p.Highest != 7 || p.Reason != "" {
		t.Errorf("%+v", restored)
	}
}
