package millrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// post is the handler of docs/delivery.md.
func post(client *http.Client, url string) millrace.Handler {
	return millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(e.Body)))
		if err != nil {
			return projection.Park(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", e.Token)
		response, err := client.Do(request)
		if err != nil {
			return projection.Retry(err) // the receiver cannot be reached at the moment
		}
		defer func() { _ = response.Body.Close() }()
		switch {
		case response.StatusCode < 300:
			return nil
		case response.StatusCode >= 500, response.StatusCode == http.StatusTooManyRequests:
			return projection.Retry(errors.New(response.Status))
		}
		return projection.Park(errors.New(response.Status)) // the receiver will never accept this event
	})
}

// Every event is posted to a server, which is unavailable now and then.
func ExampleDeliverEach() {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if requests%3 == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var body struct{ Amount float64 }
		_ = json.NewDecoder(r.Body).Decode(&body)
		fmt.Printf("%.2f, idempotency key: %v\n", body.Amount, r.Header.Get("Idempotency-Key") != "")
	}))
	defer server.Close()

	ctx := context.Background()
	store, err := pgstore.Open(ctx, os.Getenv("MILLRACE_DSN"), pgstore.Options{Schema: "example_deliver"})
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
	err = rt.Register(millrace.Projection{
		Name: "invoices", Handler: post(server.Client(), server.URL), Types: []string{"OrderPaid"},
		Retry: projection.RetryPolicy{Base: 10 * time.Millisecond},
	})
	if err != nil {
		log.Panic(err)
	}
	for _, amount := range []float64{30, 12.5, 7.25} {
		if _, err := store.Append(ctx, "order-1", event.Any,
			event.Untyped("OrderPaid", map[string]float64{"amount": amount})); err != nil {
			log.Panic(err)
		}
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		log.Panic(err)
	}
	// Output:
	// 30.00, idempotency key: true
	// 12.50, idempotency key: true
	// 7.25, idempotency key: true
}
