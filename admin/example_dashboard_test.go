package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A dashboard shows the deployment with its last hour, a table of the projections, those furthest behind first, and one
// of them. It needs no runtime.
func ExampleAdmin_Status_dashboard() {
	ctx := context.Background()
	store, end := lagging(ctx)
	defer end()
	a, err := admin.New(store)
	check(err)

	summary, err := a.Summary(ctx)
	check(err)
	fmt.Println("nodes:", len(summary.Nodes), "states:", summary.States)
	for _, m := range summary.Hour { // nodes publish it while they run
		fmt.Println(m.At, m.Applied, m.Lag)
	}

	filter := admin.StatusFilter{Sort: admin.SortByBehind, Limit: 2}
	for page := 1; ; page++ {
		status, err := a.Status(ctx, filter)
		check(err)
		for _, p := range status.Projections {
			fmt.Printf("page %d: %s is behind by %d\n", page, p.ID.Name, p.Behind)
		}
		if status.Next == "" {
			break
		}
		filter.Next = status.Next // part of the link to the next page
	}
	detail, err := a.Detail(ctx, projection.ID{Name: "mails"})
	check(err)
	fmt.Println(detail.Status.ID.Name, detail.Status.State+":", detail.Status.Reason)
	// Output:
	// nodes: 0 states: map[failed:2 not owned:1]
	// page 1: mails is behind by 3
	// page 1: invoices is behind by 1
	// page 2: totals is behind by 0
	// mails failed: projection default/mails: event at position 1, attempt 1: the address is missing
}

// lagging returns a store with projections of which two have stopped.
func lagging(ctx context.Context) (store *sqlitestore.Store, end func()) {
	folder, err := os.MkdirTemp("", "example-")
	check(err)
	store, err = sqlitestore.Open(ctx, filepath.Join(folder, "events.db"), sqlitestore.Options{})
	check(err)
	check(store.Migrate(ctx))
	rt, err := millrace.New(millrace.Config{Store: store, NodeName: "orders-1"})
	check(err)
	until := func(position int64) millrace.Handler {
		return sqlitestore.Each(func(_ context.Context, _ *sql.Tx, e event.Envelope) error {
			if e.Position > position {
				return projection.Stop(errors.New("the address is missing"))
			}
			return nil
		})
	}
	check(rt.Register(millrace.Projection{Name: "mails", Handler: until(0)},
		millrace.Projection{Name: "invoices", Handler: until(2)},
		millrace.Projection{Name: "totals", Handler: until(3)}))
	placed := event.Untyped("OrderPlaced", nil)
	_, err = store.Append(ctx, "order-1", event.Any, placed, placed, placed)
	check(err)
	if _, err := rt.RunUntilIdle(ctx); !errors.Is(err, projection.ErrFailed) {
		check(err)
	}
	return store, func() {
		store.Close()
		_ = os.RemoveAll(folder)
	}
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}
