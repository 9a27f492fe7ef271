package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/pgtest/testmain"
	"github.com/millrace-go/millrace/millracetest"
	"github.com/millrace-go/millrace/pgstore"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// migrated opens the store of a new database after its migration.
func migrated(t *testing.T) (store *pgstore.Store, dsn string) {
	t.Helper()
	dsn = pgtest.Database(t)
	if err := migrate(t.Context(), dsn); err != nil {
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
	rt, err := millrace.New(millrace.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler(store, rt))
	defer server.Close()
	post := func(order, body string) (int, string) {
		response, err := http.Post(server.URL+"/orders/"+order, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	for body, want := range map[string]int{`{"cents": 3000}`: 200, `{"cents": 1250}`: 200, `cents`: 400} {
		if code, text := post("order-1", body); code != want {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
	post("order-2", `{"cents": -1}`)
	k := millracetest.New(t, store)
	k.When(millrace.Projection{Name: "totals", Handler: pgstore.OnQueued(addItem)})
	k.Then("select stream, cents from totals", "order-1 | 4250")
	k.Parked("totals", 3)
}

func TestServerRunsUntilItsContextEnds(t *testing.T) {
	store, dsn := migrated(t)
	admin, err := millrace.NewAdmin(store)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, dsn, "127.0.0.1:0") }()
	for nodes := 0; nodes == 0 && len(ended) == 0; {
		summary, err := admin.Summary(t.Context())
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
