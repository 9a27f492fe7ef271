package millrace_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/sqlitestore"
)

// A projection that sends mails begins with the events after it was deployed, so that old customers get no mail.
func ExampleProjection_start() {
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
	_, err = store.Append(ctx, "customer-1", event.Any, event.Untyped("CustomerJoined", nil))
	check(err)
	rt, err := millrace.New(millrace.Config{Store: store})
	check(err)
	check(rt.Register(millrace.Projection{
		Name:  "welcome",
		Start: projection.Start{End: true},
		Handler: millrace.DeliverEach(func(_ context.Context, e millrace.Delivered) error {
			fmt.Println("welcome,", e.Stream)
			return nil
		}),
	}))
	_, err = rt.RunUntilIdle(ctx)
	check(err)
	_, err = store.Append(ctx, "customer-2", event.Any, event.Untyped("CustomerJoined", nil))
	check(err)
	_, err = rt.RunUntilIdle(ctx)
	check(err)
	// Output:
	// welcome, customer-2
}
