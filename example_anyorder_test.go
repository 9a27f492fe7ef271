package millrace_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// Two projections park a failing event alone, and handle the later events of its stream. In the first, a replay would
// overwrite the state of the booking with an earlier one. The second counts events, so their order does not matter.
func ExampleProjection_anyOrder() {
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
	var repaired atomic.Bool
	handler := sqlitestore.Each(func(_ context.Context, _ *sql.Tx, e event.Envelope) error {
		if e.Type == "Booked" && !repaired.Load() {
			return errors.New("no such room")
		}
		return nil
	})
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	retry := projection.RetryPolicy{MaxAttempts: 1}
	check(rt.Register(
		millrace.Projection{Name: "states", Handler: handler, Retry: retry, OnFailure: projection.ActionPark},
		millrace.Projection{Name: "counts", Handler: handler, Retry: retry, AnyOrder: true},
	))
	_, err = store.Append(ctx, "booking-1", event.Any, event.Untyped("Booked", nil), event.Untyped("Cancelled", nil))
	check(err)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	for _, name := range []string{"states", "counts"} {
		check(rt.WaitFor(ctx, millrace.ProjectionID{Name: name}, 2))
	}
	repaired.Store(true)
	replay := func(name string, filter projection.DeadLetterFilter) {
		result, err := store.DeadLetters(millrace.ProjectionID{Name: name}).Replay(ctx, filter, 10)
		fmt.Printf("%s: %d replayed, out of order: %v\n", name, result.Done, errors.Is(err, projection.ErrOutOfOrder))
	}
	replay("states", projection.DeadLetterFilter{All: true})
	replay("counts", projection.DeadLetterFilter{All: true})
	replay("states", projection.DeadLetterFilter{All: true, OutOfOrder: true}) // if it was decided so
	stop()
	fmt.Println("ended:", <-ended)
	// Output:
	// states: 0 replayed, out of order: true
	// counts: 1 replayed, out of order: false
	// states: 1 replayed, out of order: false
	// ended: <nil>
}
