package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

type Visited struct{}

func (Visited) EventType() string { return "Visited" }

// A server runs its projections until ctx is done. A request waits until a projection has handled what the request
// appended. An operator pauses and resumes a projection, on whatever node it runs.
func ExampleRuntime() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_runtime"})
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
	visits := map[string]int{} // a read model is usually a table
	id := millrace.ProjectionID{Name: "visits"}
	err = rt.Register(millrace.Projection{Name: id.Name,
		Handler: pgstore.On(func(_ context.Context, _ pgx.Tx, e event.Of[Visited]) error {
			visits[e.Stream]++
			return nil
		})})
	if err != nil {
		log.Panic(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()

	appended, err := store.Append(ctx, "page-1", event.Any, event.New(Visited{}), event.New(Visited{}))
	if err != nil {
		log.Panic(err)
	}
	if err := rt.WaitFor(ctx, id, appended.Last()); err != nil {
		log.Panic(err)
	}
	fmt.Println("visits:", visits["page-1"])

	if err := rt.Pause(ctx, id); err != nil {
		log.Panic(err)
	}
	fmt.Println("paused:", errors.Is(rt.WaitFor(ctx, id, appended.Last()+1), projection.ErrPaused))
	if err := rt.Resume(ctx, id); err != nil {
		log.Panic(err)
	}

	stop() // batches in progress are finished, leases are released
	fmt.Println("ended:", <-ended)
	// Output:
	// visits: 2
	// paused: true
	// ended: <nil>
}
