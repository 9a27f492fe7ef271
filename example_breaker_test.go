package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// A handler depends on a service that is down for longer than all retries would take. No event is parked for that: the
// projection waits, and asks with one event at a time whether the service is back.
func ExampleProjection_breaker() {
	store, drop := exampleStore()
	defer drop()
	errUnavailable := errors.New("503 service unavailable")
	calls := 0
	rt := exampleRuntime(store, millrace.Projection{
		Name:  "visits",
		Retry: projection.RetryPolicy{MaxAttempts: 2, Base: time.Millisecond},
		Breaker: projection.BreakerPolicy{
			IsOutage: func(err error) bool { return errors.Is(err, errUnavailable) },
			Failures: 2,
			OpenFor:  5 * time.Millisecond, // half a minute by default
		},
		Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
			if calls++; calls <= 6 {
				return fmt.Errorf("look up %s: %w", e.Stream, errUnavailable)
			}
			return countVisit(ctx, tx, e)
		}),
	})
	ctx := context.Background()
	if _, err := store.Append(ctx, "page-1", event.Any, event.Event{Type: "Visited"}, event.Event{Type: "Visited"}); err != nil {
		log.Panic(err)
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	status, err := rt.Status(ctx)
	if err != nil {
		log.Panic(err)
	}
	fmt.Printf("visits: %v, %d parked\n", exampleValue(store, "select n from visits where page = 'page-1'"), status.Projections[0].Parked)
	// Output:
	// visits: 2, 0 parked
}
