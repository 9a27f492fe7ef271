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
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// An event needs data that comes later. It is parked, and replayed automatically until it succeeds.
func ExampleProjection_replay() {
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
	var arrived atomic.Bool
	replayed := make(chan observe.Replay, 100)
	rt, err := millrace.New(millrace.Config{
		Store: store, Observer: observe.Observer{Replayed: func(r observe.Replay) { replayed <- r }},
	})
	check(err)
	id := millrace.ProjectionID{Name: "invoices"}
	check(rt.Register(millrace.Projection{
		Name:   id.Name,
		Retry:  projection.RetryPolicy{MaxAttempts: 1},
		Replay: projection.ReplayPolicy{Interval: 10 * time.Millisecond, MaxReplays: projection.NoLimit, Factor: 1},
		Handler: sqlitestore.Each(func(context.Context, *sql.Tx, event.Envelope) error {
			if !arrived.Load() {
				return errors.New("the customer is not known yet")
			}
			return nil
		}),
	}))
	appended, err := store.Append(ctx, "order-1", event.Any, event.Untyped("OrderPlaced", nil))
	check(err)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	check(rt.WaitFor(ctx, id, appended.Last()))
	letters, err := store.DeadLetters(id).List(ctx, projection.DeadLetterPage{})
	check(err)
	fmt.Println("parked:", len(letters))

	arrived.Store(true)
	for r := range replayed {
		if r.Err == nil {
			break
		}
	}
	letters, err = store.DeadLetters(id).List(ctx, projection.DeadLetterPage{})
	fmt.Println("parked:", len(letters), err)
	stop()
	fmt.Println("ended:", <-ended)
	// Output:
	// parked: 1
	// parked: 0 <nil>
	// ended: <nil>
}
