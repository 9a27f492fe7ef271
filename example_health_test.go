package millrace_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore"
)

// serve runs a runtime until ctx ends, which a program makes by signal.NotifyContext(ctx, syscall.SIGTERM). It answers
// probes on a port of their own until the leases are released.
func serve(ctx context.Context, rt *millrace.Runtime, address string) error {
	server := &http.Server{Addr: address, Handler: millrace.HealthHandler(rt), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	err := rt.Run(ctx) // nil after an orderly end
	err = errors.Join(err, server.Close())
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return err
}

// A process that runs projections answers the probes of Kubernetes.
func ExampleHealthHandler() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
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
	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		log.Panic(err)
	}
	probe := func(path string) {
		answer := httptest.NewRecorder()
		millrace.HealthHandler(rt).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Print(path, " ", answer.Code, " ", answer.Body)
	}
	probe("/readyz")
	handler := sqlitestore.Each(func(context.Context, *sql.Tx, event.Envelope) error {
		probe("/livez")
		stop() // as SIGTERM does
		return nil
	})
	if err := rt.Register(millrace.Projection{Name: "p", Handler: handler}); err != nil {
		log.Panic(err)
	}
	if _, err := store.Append(ctx, "s", event.Any, event.Event{Type: "Started"}); err != nil {
		log.Panic(err)
	}
	fmt.Println("ended:", serve(ctx, rt, "127.0.0.1:0"))
	probe("/readyz")
	// Output:
	// /readyz 503 {"ready":false,"reasons":["the runtime is not running"]}
	// /livez 200 {"live":true}
	// ended: <nil>
	// /readyz 503 {"ready":false,"reasons":["the runtime is not running"]}
}
