package millrace_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A function decides about each failure: an event that can never be handled is skipped, others are tried again and then
// parked. The handler names the failed event of its batch, so that the batch is not narrowed.
func ExampleProjection_failureHandler() {
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
	errUnknown := errors.New("unknown currency")
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(millrace.Projection{
		Name:  "ledger",
		Retry: projection.RetryPolicy{Base: time.Millisecond},
		Handler: sqlitestore.Batch(func(_ context.Context, _ *sql.Tx, events []event.Envelope) error {
			for _, e := range events {
				switch e.Type {
				case "PaidInCowries":
					return projection.At(e.Position, errUnknown)
				case "PaidLate":
					return projection.At(e.Position, errors.New("the month is closed"))
				}
			}
			return nil
		}),
		FailureHandler: func(_ context.Context, f projection.Failure) projection.Action {
			fmt.Println(f.Event.Type, "attempt", f.Attempt)
			switch {
			case errors.Is(f.Err, errUnknown):
				return projection.ActionSkip
			case f.Attempt < 2:
				return projection.ActionRetry
			}
			return projection.ActionPark
		},
	}))
	_, err = store.Append(ctx, "account-1", event.Any, event.Untyped("PaidInCowries", nil),
		event.Untyped("PaidLate", nil), event.Untyped("Paid", nil))
	check(err)
	status, err := rt.RunUntilIdle(ctx)
	check(err)
	ledger := status.Projection(millrace.ProjectionID{Name: "ledger"})
	fmt.Println("applied", ledger.Applied, "skipped", ledger.Skipped, "parked", ledger.Parked)
	// Output:
	// PaidInCowries attempt 1
	// PaidLate attempt 1
	// PaidLate attempt 2
	// applied 1 skipped 1 parked 1
}
