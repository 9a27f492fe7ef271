package admin_test

import (
	"context"
	"database/sql"
	"encoding/json"
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

// Any process can look at the deployment: at its sums, and at the projections that need attention. Both have a stable
// JSON.
func ExampleAdmin_Status() {
	check := func(err error) {
		if err != nil {
			log.Panic(err)
		}
	}
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "example-")
	check(err)
	defer func() { _ = os.RemoveAll(folder) }()
	store, err := sqlitestore.Open(ctx, filepath.Join(folder, "events.db"), sqlitestore.Options{})
	check(err)
	defer store.Close()
	check(store.Migrate(ctx))
	rt, err := millrace.New(millrace.Config{Store: store, NodeName: "orders-1"})
	check(err)
	check(rt.Register(
		millrace.Projection{Name: "mails",
			Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
				return projection.Park(errors.New("no such address"))
			})},
		millrace.Projection{
			Name:    "totals",
			Handler: sqlitestore.Each(func(context.Context, *sql.Tx, event.Envelope) error { return nil }),
		},
	))
	_, err = store.Append(ctx, "order-1", event.Any, event.Untyped("OrderPlaced", nil), event.Untyped("OrderPaid", nil))
	check(err)
	_, err = rt.RunUntilIdle(ctx)
	check(err)

	a, err := admin.New(store)
	check(err)
	summary, err := a.Summary(ctx)
	check(err)
	fmt.Println("parked:", summary.Parked, "oldest in", summary.OldestParkedIn.Name)
	for _, found := range summary.Findings() {
		fmt.Println(found.Check+":", found.Advice)
	}
	status, err := a.Status(ctx, admin.StatusFilter{Parked: true})
	check(err)
	for _, p := range status.Projections {
		fmt.Println(p.ID.Name, "at", p.Checkpoint, "of", p.Mark, "parked", p.Parked)
	}
	mails := status.Projection(millrace.ProjectionID{Name: "mails"})
	text, err := json.Marshal(mails.ID)
	fmt.Println(string(text), err)
	// Output:
	// parked: 2 oldest in mails
	// dead letters: repair the cause, then replay or discard them
	// mails at 2 of 2 parked 2
	// {"tenant":"default","name":"mails"} <nil>
}
