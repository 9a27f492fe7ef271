package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// An event fails, and its stream is parked behind it, in order, while all others go on. When the handler is mended, the
// stream is replayed whole.
func ExampleProjection_parkStream() {
	store, drop := exampleStore()
	defer drop()
	var mended atomic.Bool
	rt := exampleRuntime(store, millrace.Projection{
		Name:      "visits",
		Retry:     projection.RetryPolicy{MaxAttempts: 1},
		OnFailure: projection.ActionParkStream,
		Handler: pgstore.Each(func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
			if e.Type == "Teleported" && !mended.Load() {
				return errors.New("nobody told me what Teleported is")
			}
			return countVisit(ctx, tx, e)
		}),
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	id := millrace.ProjectionID{Name: "visits"}
	for _, e := range []struct{ page, eventType string }{
		{"page-1", "Visited"}, {"page-1", "Teleported"}, {"page-2", "Visited"}, {"page-1", "Visited"},
	} {
		appended, err := store.Append(ctx, e.page, event.Any, event.Event{Type: e.eventType})
		if err != nil {
			log.Panic(err)
		}
		if err := rt.WaitFor(ctx, id, appended.Positions[0]); err != nil {
			log.Panic(err)
		}
	}
	letters := store.DeadLetters(id)
	parked, err := letters.List(ctx, projection.DeadLetterPage{})
	if err != nil {
		log.Panic(err)
	}
	for _, l := range parked {
		fmt.Printf("%s, version %d: %s\n", l.Stream, l.Version, l.Error)
	}
	fmt.Println("page-2 is visited:", exampleValue(store, "select n from visits where page = 'page-2'"))

	mended.Store(true)
	outcome, err := letters.Replay(ctx, projection.DeadLetterFilter{Stream: "page-1"}, 100)
	if err != nil {
		log.Panic(err)
	}
	fmt.Printf("%d replayed, %d failed\n", outcome.Done, outcome.Failed)
	fmt.Println("page-1 is visited:", exampleValue(store, "select n from visits where page = 'page-1'"))
	stop()
	if err := <-ended; err != nil {
		log.Panic(err)
	}
	// Output:
	// page-1, version 2: nobody told me what Teleported is
	// page-1, version 3: parked behind an earlier event of its stream
	// page-2 is visited: 1
	// 2 replayed, 0 failed
	// page-1 is visited: 3
}
