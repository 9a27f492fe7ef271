// Command orders is the program of docs/tutorial.md: a service that takes orders, has them paid by a provider, and
// cancels those that are not paid in time. Its store is a PostgreSQL database, or an SQLite file.
//
//	orders -store postgres://localhost/orders -provider http://localhost:9000
//	orders -store orders.db -provider http://localhost:9000
//	orders admin --file orders.db events tail
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
)

// tables creates the read models' tables, in both databases.
const tables = `create table if not exists order_list (id text primary key, customer text not null, cents bigint not null, state text not null);
	create table if not exists deadlines (id text primary key, due bigint not null)`

// errNothing is returned by service.show for what is not in a read model.
var errNothing = errors.New("there is no such row")

// settings come from the command line.
type settings struct {
	store, provider, listen string
	patience                time.Duration
}

// service is the program on one kind of store.
type service struct {
	store interface {
		millrace.Store
		aggregate.Store
	}
	projections []millrace.Projection
	// show returns a text that a query of a read model finds, and due the orders whose deadlines have passed.
	show  func(ctx context.Context, query, arg string) (string, error)
	due   func(ctx context.Context, now time.Time) ([]string, error)
	close func()
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "admin" {
		os.Exit(administer(os.Args[2:]))
	}
	var s settings
	flag.StringVar(&s.store, "store", "orders.db", "the DSN of a PostgreSQL database, or the path of an SQLite file")
	flag.StringVar(&s.provider, "provider", "http://localhost:9000", "the address of the payment provider")
	flag.StringVar(&s.listen, "listen", "localhost:8080", "the address of this server")
	flag.DurationVar(&s.patience, "patience", 15*time.Minute, "how long an order may stay unpaid")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		log.Print(err)
		os.Exit(1)
	}
}

func open(ctx context.Context, s settings) (*service, error) {
	if strings.Contains(s.store, "://") {
		return openPostgres(ctx, s)
	}
	return openSQLite(ctx, s)
}

// run runs the projections, the deadlines and the server until ctx ends.
func run(ctx context.Context, s settings) error {
	service, err := open(ctx, s)
	if err != nil {
		return err
	}
	defer service.close()
	rt, err := millrace.New(millrace.Config{Store: service.store, Logger: millrace.SlogLogger(slog.Default())})
	if err != nil {
		return err
	}
	if err := rt.Register(service.projections...); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	server := &http.Server{Addr: s.listen, Handler: handler(service, rt), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 3)
	go func() { ended <- rt.Run(ctx) }()
	go func() { ended <- service.expireUntil(ctx) }()
	go func() { ended <- server.ListenAndServe() }()
	err = <-ended
	end()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(ending), <-ended, <-ended)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// expireUntil looks for deadlines every second.
func (s *service) expireUntil(ctx context.Context) error {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
			if err := expire(ctx, s); err != nil && ctx.Err() == nil {
				slog.Warn("deadlines", "error", err)
			}
		}
	}
}

// handler serves the commands and the list. A client sends each command with a header Idempotency-Key, and again until
// it gets an answer. The answer comes after the list shows the command.
func handler(s *service, rt *millrace.Runtime) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		placed, err := placedOf(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		done, err := orders.Do(r.Context(), s.store, r.PathValue("id"), place(placed), key(r))
		if err != nil {
			reply(w, err)
			return
		}
		reply(w, rt.WaitFor(r.Context(), millrace.ProjectionID{Name: "order_list"}, done.Position))
	})
	mux.HandleFunc("POST /orders/{id}/cancel", func(w http.ResponseWriter, r *http.Request) {
		_, err := orders.Do(r.Context(), s.store, r.PathValue("id"), cancel("by the customer"), key(r))
		reply(w, err)
	})
	mux.HandleFunc("POST /payments/{id}", func(w http.ResponseWriter, r *http.Request) { // the answer of the provider
		reference := r.PostFormValue("reference")
		if !r.PostForm.Has("reference") { // it is empty if the payment is declined
			http.Error(w, "the form has no reference", http.StatusBadRequest)
			return
		}
		_, err := payments.Do(r.Context(), s.store, r.PathValue("id"), answer(reference), key(r))
		reply(w, err)
	})
	for path, query := range map[string]string{
		"GET /orders/{id}":   "select state from order_list where id = $1",
		"GET /turnover/{id}": "select cast(cents as text) from turnover where currency = $1",
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			text, err := s.show(r.Context(), query, r.PathValue("id"))
			if err != nil {
				reply(w, err)
				return
			}
			_, _ = fmt.Fprintln(w, text)
		})
	}
	return correlated(mux)
}

// correlated gives the events of a request the id of its command, and so those that follow from them.
func correlated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(event.WithCorrelation(r.Context(), r.Header.Get("Idempotency-Key"))))
	})
}

// placedOf returns the order of a request.
func placedOf(r *http.Request) (OrderPlaced, error) {
	placed := OrderPlaced{Currency: "EUR"} // clients of release 1 name none
	err := json.NewDecoder(r.Body).Decode(&placed)
	return placed, err
}

func key(r *http.Request) aggregate.Option { return aggregate.Key(r.Header.Get("Idempotency-Key")) }

// reply writes the answer to a command.
func reply(w http.ResponseWriter, err error) {
	code := http.StatusOK
	switch {
	case err == nil:
	case errors.Is(err, ErrNoOrder), errors.Is(err, errNothing):
		code = http.StatusNotFound
	case errors.Is(err, ErrPlaced), errors.Is(err, ErrPaid), errors.Is(err, ErrCancelled):
		code = http.StatusConflict
	case errors.Is(err, ErrCents), errors.Is(err, aggregate.ErrID), errors.Is(err, aggregate.ErrKey),
		errors.Is(err, event.ErrKeyReused):
		code = http.StatusBadRequest
	default:
		code = http.StatusServiceUnavailable // send it again
	}
	if err != nil {
		http.Error(w, err.Error(), code)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}
