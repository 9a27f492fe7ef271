package millrace_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

type (
	SignedUp  struct{ Name, Mail string }
	SignedOff struct{ Mail string }
)

func (SignedUp) EventType() string  { return "SignedUp" }
func (SignedOff) EventType() string { return "SignedOff" }

// mails is the projection of docs/delivery.md.
func mails(send func(ctx context.Context, key, to, text string) error) millrace.Projection {
	return millrace.Projection{
		Name: "mails",
		Handler: millrace.DeliverRoute(
			millrace.DeliverOn(func(ctx context.Context, e millrace.DeliveredOf[SignedUp]) error {
				return send(ctx, e.Token, e.Body.Mail, "Welcome, "+e.Body.Name)
			}, event.Strict),
			millrace.DeliverOn(func(ctx context.Context, e millrace.DeliveredOf[SignedOff]) error {
				return send(ctx, e.Token, e.Body.Mail, "Goodbye")
			}, event.Strict),
		),
	}
}

// Each event type has a function of its own, which gets the decoded events and sends mails.
func ExampleDeliverRoute() {
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
	check(rt.Register(mails(func(_ context.Context, key, to, text string) error {
		fmt.Printf("%s: %s, idempotency key: %v\n", to, text, key != "")
		return nil
	})))
	ada := "ada@example.com"
	_, err = store.Append(ctx, "customer-1", event.NoStream, event.New(SignedUp{"Ada", ada}), event.New(SignedOff{ada}))
	check(err)
	_, err = rt.RunUntilIdle(ctx)
	check(err)
	// Output:
	// ada@example.com: Welcome, Ada, idempotency key: true
	// ada@example.com: Goodbye, idempotency key: true
}
