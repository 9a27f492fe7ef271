// Command server takes orders over HTTP, keeps a total of each order, and answers the probes of an orchestrator. It is
// the program of docs/guide.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
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

// handler serves POST /orders/{order}, /livez and /readyz. A client sends each order with a header Idempotency-Key. If
// the answer is lost, it sends the order with the same key again, and the store appends it once.
func handler(store *pgstore.Store) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{order}", func(w http.ResponseWriter, r *http.Request) {
		var item ItemAdded
		if err := json.NewDecoder(r.Body).Decode(&item); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		once := event.Any.WithKey(r.Header.Get("Idempotency-Key"))
		if err := once.Validate(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		appended, err := store.Append(r.Context(), r.PathValue("order"), once, event.New(item))
		switch {
		case errors.Is(err, event.ErrKeyReused): // for another order
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			_, _ = fmt.Fprintln(w, "position", appended.Last())
		}
	})
	return mux
}

// stopping are the times that a server takes to stop. In Drain it answers requests though it is no longer ready, until
// no load balancer sends it new ones. After that, requests in progress have the time of Requests.
type stopping struct{ Drain, Requests time.Duration }

// serve runs a runtime, and serves requests and probes, until ctx ends. Then it stops both in the order in which
// nothing is cut off.
func serve(ctx context.Context, rt *millrace.Runtime, requests http.Handler, at net.Listener, s stopping) error {
	ctx, end := context.WithCancel(ctx)
	// A request may wait for the runtime, so neither ends with ctx.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	mux := http.NewServeMux()
	mux.Handle("/", requests)
	mux.Handle("/livez", millrace.HealthHandler(rt))
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			http.Error(w, "the process is stopping", http.StatusServiceUnavailable)
			return
		}
		millrace.HealthHandler(rt).ServeHTTP(w, r)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	var served, ran error
	var both sync.WaitGroup
	both.Go(func() { served = server.Serve(at); end() })
	both.Go(func() { ran = rt.Run(running); end() })

	<-ctx.Done()          // 1. the signal, or one of both ended by itself: /readyz answers 503
	<-time.After(s.Drain) // 2. the load balancer notices that, and what it still sends is answered
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Requests)
	defer cancel()
	err := server.Shutdown(ending) // 3. no new requests; those in progress end
	if err != nil {
		err = errors.Join(fmt.Errorf("cut off the requests in progress: %w", err), server.Close()) // they took too long
	}
	stop() // 4. batches end within Config.GracePeriod, and the leases are released
	both.Wait()
	if errors.Is(served, http.ErrServerClosed) {
		served = nil
	}
	return errors.Join(ran, served, err)
}

// run runs the projection and serves HTTP until ctx ends. The store is closed last.
func run(ctx context.Context, dsn, address string, s stopping) error {
	store, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	defer store.Close()
	rt, err := millrace.New(millrace.Config{Store: store, Logger: millrace.SlogLogger(slog.Default())})
	if err != nil {
		return err
	}
	if err := rt.Register(millrace.Projection{Name: "totals",
		Handler: pgstore.OnQueued(addItem, event.Strict)}); err != nil {
		return err
	}
	at, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return serve(ctx, rt, handler(store), at, s)
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
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	dsn, err := os.Getenv("DATABASE_URL"), errors.New("usage: server migrate | server ADDRESS")
	switch {
	case len(os.Args) == 2 && os.Args[1] == "migrate":
		err = migrate(ctx, dsn)
	case len(os.Args) == 2:
		err = run(ctx, dsn, os.Args[1], stopping{Drain: 5 * time.Second, Requests: 15 * time.Second})
	}
	if err != nil {
		log.Fatal(err)
	}
}
