package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

type AccountOpened struct{ Owner string }

func (AccountOpened) EventType() string { return "AccountOpened" }

// Events are appended to a stream that must be in an expected state, and read. An append with an idempotency key can be
// repeated, for instance after a timeout.
func Example() {
	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_append"})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	for range 2 {
		appended, err := store.Append(ctx, "account-1", event.NoStream.WithKey("command-77"),
			event.New(AccountOpened{Owner: "Ada"}))
		fmt.Println(appended.Version, appended.Repeated, err)
	}
	deposited := event.Untyped("MoneyDeposited", map[string]any{"amount": 10.5})
	_, err = store.Append(ctx, "account-1", event.Exact(7), deposited)
	fmt.Println(errors.Is(err, event.ErrVersionConflict), err)

	for e, err := range store.ReadStream(ctx, "account-1", 1) {
		if err != nil {
			log.Panic(err)
		}
		opened, err := event.As[AccountOpened](e)
		fmt.Println(e.Version, e.Type, opened.Body.Owner, err)
	}
	// Output:
	// 1 false <nil>
	// 1 true <nil>
	// true append to "account-1": version conflict: stream "account-1" is at version 1, expected version 7
	// 1 AccountOpened Ada <nil>
}
