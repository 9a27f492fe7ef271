package millrace_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"database/sql"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

type tenantKey struct{}

// withTenant adds the tenant to the context of the functions of handlers.
func withTenant(next millrace.HandleFunc) millrace.HandleFunc {
	return func(ctx context.Context, events []event.Envelope) error {
		id, _ := millrace.ProjectionFrom(ctx)
		return next(context.WithValue(ctx, tenantKey{}, id.Tenant), events)
	}
}

// logged logs each event with its result.
func logged(next millrace.HandleFunc) millrace.HandleFunc {
	return func(ctx context.Context, events []event.Envelope) error {
		err := next(ctx, events)
		fmt.Println("handled", events[0].Type, "result", err)
		return err
	}
}

// Middleware runs around the function of every handler, here for each event.
func ExampleMiddleware() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "events.db"), sqlitestore.Options{})
	if err != nil {
		log.Panic(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Panic(err)
	}
	rt, err := millrace.New(millrace.Config{Store: store, Middleware: []millrace.Middleware{logged, withTenant}})
	if err != nil {
		log.Panic(err)
	}
	greet := func(ctx context.Context, _ *sql.Tx, e event.Envelope) error {
		fmt.Println("tenant", ctx.Value(tenantKey{}))
		return nil
	}
	if err := rt.Register(millrace.Projection{Name: "greetings", Handler: sqlitestore.Each(greet)}); err != nil {
		log.Panic(err)
	}
	if _, err := store.Append(ctx, "user-1", event.Any, event.Untyped("UserJoined", nil)); err != nil {
		log.Panic(err)
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	// Output:
	// tenant default
	// handled UserJoined result <nil>
}
