package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A handler publishes several events together and acknowledges them. It rejects an event that can never be published:
// that event is parked, and the others go on.
func ExampleDeliver() {
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
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(millrace.Projection{Name: "broker",
		Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
			events := d.Events()
			drafts := slices.IndexFunc(events, func(e event.Envelope) bool { return e.Type == "Draft" })
			switch {
			case d.Remaining() < time.Second:
				return nil // all of them come with the next delivery
			case drafts == 0:
				return d.Reject(ctx, events[0].Position, projection.Park(errors.New("a draft has no topic")))
			case drafts > 0:
				events = events[:drafts]
			}
			for _, e := range events {
				fmt.Println("publish", e.Type, "with a token:", d.Token(e) != "")
			}
			return d.Ack(ctx, events[len(events)-1].Position) // the rest comes with the next delivery
		})}))
	_, err = store.Append(ctx, "order-1", event.Any, event.Untyped("Placed", nil), event.Untyped("Draft", nil),
		event.Untyped("Paid", nil))
	check(err)
	status, err := rt.RunUntilIdle(ctx)
	check(err)
	fmt.Println("parked:", status.Projection(millrace.ProjectionID{Name: "broker"}).Parked)
	// Output:
	// publish Placed with a token: true
	// publish Paid with a token: true
	// parked: 1
}
