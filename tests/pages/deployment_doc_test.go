package pages_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// serve is that of docs/deployment.md.
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

// A process calls Migrate, which only reads if a job of the owner has migrated. It is ready while it runs projections,
// and ends in order.
func TestProcessOfTheDeploymentPageServes(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, store *pgstore.Store) {
		must(t, store.Migrate(t.Context()))
		placed, err := store.Append(t.Context(), "order-1", event.NoStream, event.Untyped("OrderPlaced", nil))
		must(t, err)
		rt, err := millrace.New(millrace.Config{Store: store})
		must(t, err)
		must(t,
			rt.Register(millrace.Projection{
				Name:    "orders",
				Handler: pgstore.Each(func(context.Context, pgx.Tx, event.Envelope) error { return nil }),
			}))
		ctx, terminate := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, rt, "127.0.0.1:0") }()
		must(t, rt.WaitFor(t.Context(), millrace.ProjectionID{Name: "orders"}, placed.Last()))
		ready := func() int {
			answer := httptest.NewRecorder()
			millrace.HealthHandler(rt).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			return answer.Code
		}
		if code := ready(); code != http.StatusOK {
			t.Errorf("/readyz answers %d while the process runs", code)
		}
		terminate()
		must(t, <-ended)
		if code := ready(); code != http.StatusServiceUnavailable {
			t.Errorf("/readyz answers %d after the end", code)
		}
	})
}
