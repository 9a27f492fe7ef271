package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// A projection that must not miss an event stops at one that it cannot handle, and says why. When that is mended, somebody
// resumes it, and nothing was lost.
func ExampleProjection_onFailure() {
	store, drop := exampleStore()
	defer drop()
	var mended atomic.Bool
	rt := exampleRuntime(store, millrace.Projection{
		Name:      "visits",
		Retry:     projection.RetryPolicy{MaxAttempts: 1},
		OnFailure: projection.ActionStop,
		Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
			if e.Type != "Visited" && !mended.Load() {
				return fmt.Errorf("nobody told me what %s is", e.Type)
			}
			return countVisit(ctx, tx, e)
		}),
	})
	ctx := context.Background()
	for _, eventType := range []string{"Visited", "Teleported", "Visited"} {
		if _, err := store.Append(ctx, "page-1", event.Any, event.Event{Type: eventType}); err != nil {
			log.Panic(err)
		}
	}
	_, err := rt.RunUntilIdle(ctx)
	fmt.Println("failed:", errors.Is(err, projection.ErrFailed))
	status, err := rt.Status(ctx)
	if err != nil {
		log.Panic(err)
	}
	fmt.Printf("%s: %s\n", status.Projections[0].State, status.Projections[0].Reason)

	mended.Store(true)
	if err := rt.Resume(ctx, millrace.ProjectionID{Name: "visits"}); err != nil {
		log.Panic(err)
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	fmt.Println("visits:", exampleValue(store, "select n from visits where page = 'page-1'"))
	// Output:
	// failed: true
	// failed: projection default/visits: event at position 2, attempt 1: nobody told me what Teleported is
	// visits: 3
}

// A function decides about each failure, by the error, the event, and how often it failed; and a handler that knows better
// says so itself.
func ExampleProjection_decide() {
	store, drop := exampleStore()
	defer drop()
	errTorn := errors.New("the page is torn")
	rt := exampleRuntime(store, millrace.Projection{
		Name:  "visits",
		Retry: projection.RetryPolicy{Base: 10 * time.Millisecond},
		FailureHandler: func(_ context.Context, f projection.Failure) projection.Action {
			if errors.Is(f.Err, errTorn) && f.Attempt < 3 {
				return projection.ActionRetry
			}
			fmt.Printf("%s failed %d times: %v\n", f.Event.Type, f.Attempt, f.Err)
			return projection.ActionPark
		},
		Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
			switch e.Type {
			case "Torn":
				return errTorn
			case "Teleported":
				return projection.Skip(errors.New("of no interest"))
			}
			return countVisit(ctx, tx, e)
		}),
	})
	ctx := context.Background()
	for _, eventType := range []string{"Visited", "Teleported", "Torn", "Visited"} {
		if _, err := store.Append(ctx, "page-1", event.Any, event.Event{Type: eventType}); err != nil {
			log.Panic(err)
		}
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	status, err := rt.Status(ctx)
	if err != nil {
		log.Panic(err)
	}
	p := status.Projections[0]
	fmt.Printf("visits: %v, %d parked, %d skipped\n", exampleValue(store, "select n from visits where page = 'page-1'"), p.Parked, p.Skipped)
	// Output:
	// Torn failed 3 times: the page is torn
	// visits: 2, 1 parked, 1 skipped
}
