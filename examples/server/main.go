// Command server takes orders over HTTP, keeps a total of each order, and answers the probes of an orchestrator. It is the
// program of docs/guide.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

type ItemAdded struct {
	Cents int64 `json:"cents"`
}

func (ItemAdded) EventType() string { return "ItemAdded" }

func addItem(_ context.Context, q pgstore.Queue, e event.Of[ItemAdded]) error {
	if e.Body.Cents < 0 {
		return fmt.Errorf("an item of %d cents", e.Body.Cents)
	}
	q.Exec(`insert into totals values ($1, $2)
		on conflict (stream) do update set cents = totals.cents + excluded.cents`, e.Stream, e.Body.Cents)
	return nil
}

func open(ctx context.Context, dsn string) (*pgstore.Store, error) {
	return pgstore.Open(ctx, dsn, pgstore.Options{TenantSetup: []pgstore.TenantStep{
		pgstore.TenantSQL(`create table totals (stream text primary key, cents bigint not null)`),
	}})
}

// handler serves POST /orders/{order}, /livez and /readyz.
func handler(store *pgstore.Store, rt *millrace.Runtime) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", millrace.HealthHandler(rt))
	mux.HandleFunc("POST /orders/{order}", func(w http.ResponseWriter, r *http.Request) {
		var item ItemAdded
		if err := json.NewDecoder(r.Body).Decode(&item); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		appended, err := store.Append(r.Context(), r.PathValue("order"), event.Any, event.New(item))
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "position", appended.Positions[0])
	})
	return mux
}

// run runs the projection and serves HTTP until ctx ends.
func run(ctx context.Context, dsn, address string) error {
	store, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	defer store.Close()
	rt, err := millrace.New(millrace.Config{Store: store, Logger: millrace.SlogLogger(slog.Default())})
	if err != nil {
		return err
	}
	if err := rt.Register(millrace.Projection{Name: "totals", Handler: pgstore.OnQueued(addItem)}); err != nil {
		return err
	}
	server := &http.Server{Addr: address, Handler: handler(store, rt), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	err = errors.Join(rt.Run(ctx), server.Close())
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return err
}

// migrate creates the tables of millrace and of the program. It runs as the owner of the database.
func migrate(ctx context.Context, dsn string) error {
	store, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Migrate(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dsn, err := os.Getenv("DATABASE_URL"), errors.New("usage: server migrate | server ADDRESS")
	switch {
	case len(os.Args) == 2 && os.Args[1] == "migrate":
		err = migrate(ctx, dsn)
	case len(os.Args) == 2:
		err = run(ctx, dsn, os.Args[1])
	}
	if err != nil {
		log.Fatal(err)
	}
}
