package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

var errUnavailable = errors.New("503 service unavailable")

// A handler depends on a service that is down for longer than all retries take. No event is parked: the projection
// waits and tries one event from time to time until the service answers.
func ExampleProjection_breaker() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_breaker"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		log.Panic(err)
	}
	calls := 0
	err = rt.Register(millrace.Projection{
		Name:  "lookups",
		Retry: projection.RetryPolicy{MaxAttempts: 2, Base: time.Millisecond},
		Breaker: projection.BreakerPolicy{
			IsOutage: func(err error) bool { return errors.Is(err, errUnavailable) },
			Failures: 2,
			OpenFor:  5 * time.Millisecond, // 30 s by default
		},
		Handler: pgstore.Each(func(_ context.Context, _ pgx.Tx, e event.Envelope) error {
			calls++
			if calls <= 6 {
				return fmt.Errorf("look up %s: %w", e.Stream, errUnavailable)
			}
			return nil
		}),
	})
	if err != nil {
		log.Panic(err)
	}
	if _, err := store.Append(ctx, "page-1", event.Any, event.Untyped("Visited", nil),
		event.Untyped("Visited", nil)); err != nil {
		log.Panic(err)
	}
	status, err := rt.RunUntilIdle(ctx)
	p := status.Projection(millrace.ProjectionID{Name: "lookups"})
	fmt.Printf("%d applied, %d parked, %v\n", p.Applied, p.Parked, err)
	// Output:
	// 2 applied, 0 parked, <nil>
}
