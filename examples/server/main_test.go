package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/pgtest/testmain"
	"github.com/millrace-go/millrace/millracetest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// migrated opens the store of a new database as the role that runs, after the migration by the role that owns the
// tables.
func migrated(t *testing.T) (store *pgstore.Store, dsn string) {
	t.Helper()
	owner, dsn := kit.RolesOf(t, pgtest.Database(t))
	if err := migrate(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	store, err := open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store, dsn
}

func TestOrdersAreAddedUp(t *testing.T) {
	store, _ := migrated(t)
	server := httptest.NewServer(handler(store))
	defer server.Close()
	post := func(order, key, body string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders/"+
			order, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			request.Header.Set("Idempotency-Key", key)
		}
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	for _, c := range []struct {
		order, key, body string
		code             int
		answer           string
	}{
		{"order-1", "a", `{"cents": 3000}`, 200, "position 1\n"},
		{"order-1", "b", `{"cents": 1250}`, 200, "position 2\n"},
		{"order-1", "a", `{"cents": 3000}`, 200, "position 1\n"}, // sent again
		{"order-1", "c", `cents`, 400, "invalid character"},
		{"order-1", "", `{"cents": 1}`, 400, "the idempotency key must not be empty"},
		{"order-2", "a", `{"cents": 1}`, 422, "idempotency key used before"},
		{"order-2", "d", `{"cents": -1}`, 200, "position 3\n"},
	} {
		if code, text := post(c.order, c.key, c.body); code != c.code || !strings.Contains(text, c.answer) {
			t.Errorf("%+v: %d %s", c, code, text)
		}
	}
	k := millracetest.New(t, store)
	k.When(millrace.Projection{Name: "totals", Handler: pgstore.OnQueued(addItem, event.Strict)})
	k.Then("select stream, cents from totals", "order-1 | 4250")
	k.Parked("totals", 3)
}

func TestServerRunsUntilItsContextEnds(t *testing.T) {
	store, dsn := migrated(t)
	a, err := admin.New(store)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, dsn, "127.0.0.1:0", stopping{Requests: time.Minute}) }()
	for nodes := 0; nodes == 0 && len(ended) == 0; {
		summary, err := a.Summary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		nodes = len(summary.Nodes)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
