package sqlitestore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

type userKey struct{}

// withUser adds the user of the request to the headers of what the request appends.
func withUser(next event.AppendFunc) event.AppendFunc {
	return func(ctx context.Context, a event.Appending) (event.Appended, error) {
		user, _ := ctx.Value(userKey{}).(string)
		return next(ctx, a.WithHeaders(map[string]string{"user": user}))
	}
}

// Middleware adds headers to all events that a program appends.
func ExampleOptions_appendMiddleware() {
	folder, err := os.MkdirTemp("", "bank-")
	if err != nil {
		log.Panic(err)
	}
	defer os.RemoveAll(folder)
	ctx := context.WithValue(context.Background(), userKey{}, "ada")
	store, err := sqlitestore.Open(ctx, filepath.Join(folder, "bank.db"),
		sqlitestore.Options{AppendMiddleware: []event.AppendMiddleware{withUser}})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	if _, err := store.Append(ctx, "account-1", event.NoStream, event.Untyped("AccountOpened", nil)); err != nil {
		log.Panic(err)
	}
	for e, err := range store.ReadStream(ctx, "account-1", 1) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(e.Type, e.Headers())
	}
	// Output:
	// AccountOpened map[user:ada]
}
