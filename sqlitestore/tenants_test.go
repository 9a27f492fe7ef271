package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/tenancy"
)

// A customer of a name leaves with its rows in the read model, while projections run, and one of that name comes again.
func TestCustomerLeavesAFile(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	store, rt := opened(t, filepath.Join(t.TempDir(), "app.db"))
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- rt.Run(running) }()
	for range 3 {
		for _, customer := range []string{"acme", "other"} {
			tenant, err := store.CreateTenant(ctx, customer)
			if err != nil {
				t.Fatal(err)
			}
			r, err := tenant.Append(ctx, "account", event.Any, event.New(PaymentHandled{"0.01"}))
			if err != nil {
				t.Fatal(err)
			}
			if err := rt.WaitFor(ctx, millrace.ProjectionID{Tenant: customer, Name: "payments"},
				r.Positions[0]); err != nil {
				t.Fatal(err)
			}
		}
		if _, n := paid(t, store, "acme"); n != 1 {
			t.Errorf("%d payments of a new customer", n)
		}
		short, cancel := context.WithTimeout(ctx, time.Millisecond) // it is interrupted at any time
		_ = leave(short, store, "acme")
		cancel()
		if err := leave(ctx, store, "acme"); err != nil && !errors.Is(err, tenancy.ErrUnknown) {
			t.Fatal(err)
		}
		if _, n := paid(t, store, "acme"); n != 0 {
			t.Errorf("%d payments are left", n)
		}
	}
	if _, n := paid(t, store, "other"); n != 3 {
		t.Errorf("%d payments of the other customer", n)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The statement of docs/sqlite.md finds the partition of a stream.
func TestPublishedStatementFindsThePartitionOfAStream(t *testing.T) {
	t.Parallel()
	store, rt := opened(t, filepath.Join(t.TempDir(), "app.db"))
	document, err := os.ReadFile(filepath.Join("..", "docs", "sqlite.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, statement, _ := strings.Cut(string(document), "```sql\n")
	statement, _, _ = strings.Cut(statement, "```")
	for i := range 9 {
		if _, err := store.Append(t.Context(), fmt.Sprint("order-", i), event.Any,
			event.New(PaymentHandled{"0.01"})); err != nil {
			t.Fatal(err)
		}
	}
	runUntilIdle(t, rt)
	if err := rt.Repartition(t.Context(), millrace.ProjectionID{Name: "payments"}, 4); err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		stream := fmt.Sprint("order-", i)
		var number, slot int
		err := store.DB().QueryRowContext(t.Context(), strings.Replace(statement, "order-1", stream, 1)).Scan(&number,
			&slot)
		if want := partition.Slot(stream); err != nil || slot != int(want) || number != partition.Of(want, 4) {
			t.Errorf("%s: partition %d, slot %d, %v; want %d", stream, number, slot, err, want)
		}
	}
}
