package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/examples/orders/release1"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/pgtest/testmain"
	"github.com/millrace-go/millrace/millracetest"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestMain(m *testing.M) { testmain.Run(m) }

func TestDecisions(t *testing.T) {
	order := OrderPlaced{Customer: "Ada", Cents: 42_00}
	placed, paid := event.New(order), event.New(OrderPaid{"r1"})
	millracetest.Given(t, orders).When(place(order)).Then(placed)
	millracetest.Given(t, orders).When(place(OrderPlaced{Customer: "Ada"})).ThenError(ErrCents)
	millracetest.Given(t, orders, placed).When(place(order)).ThenError(ErrPlaced)
	millracetest.Given(t, orders, placed).When(pay("r1")).Then(paid)
	millracetest.Given(t, orders, placed, paid).When(pay("r1")).Then()
	millracetest.Given(t, orders, placed, paid).When(cancel("late")).ThenError(ErrPaid)
	millracetest.Given(t, orders).When(cancel("late")).ThenError(ErrNoOrder)
	if err := errors.Join(orders.Validate(), payments.Validate()); err != nil {
		t.Error(err)
	}
}

// world is the service beside a provider.
type world struct {
	t       *testing.T
	service *service
	server  *httptest.Server
	mu      sync.Mutex
	asked   []string // what the provider was asked, without repeats
	bodies  []string
	tokens  map[string]bool
}

// deployed returns a database in which a job of the role that owns the tables has migrated, for the role that runs.
func deployed(t *testing.T) (dsn string) {
	owner, dsn := kit.RolesOf(t, pgtest.Database(t))
	job, err := open(t.Context(), settings{store: owner})
	if err != nil {
		t.Fatal(err)
	}
	job.close()
	return dsn
}

// onEachStore runs a test on the service with each kind of store.
func onEachStore(t *testing.T, patience time.Duration, test func(w *world)) {
	for name, place := range map[string]func(t *testing.T) string{
		"postgres": deployed,
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "orders.db") },
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, tokens: make(map[string]bool)}
			provider := httptest.NewServer(w)
			defer provider.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			var err error
			w.service, err = open(ctx, settings{store: place(t), provider: provider.URL, patience: patience})
			if err != nil {
				t.Fatal(err)
			}
			defer w.service.close()
			rt, err := millrace.New(millrace.Config{Store: w.service.store})
			if err == nil {
				err = rt.Register(w.service.projections...)
			}
			if err != nil {
				t.Fatal(err)
			}
			running, stop := context.WithCancel(ctx)
			var group sync.WaitGroup
			group.Go(func() {
				if err := rt.Run(running); err != nil {
					t.Error(err)
				}
			})
			group.Go(func() { _ = w.service.expireUntil(running) })
			w.server = httptest.NewServer(handler(w.service, rt))
			test(w)
			w.server.Close()
			stop()
			group.Wait()
		})
	}
}

// ServeHTTP is the provider: it notes what it is asked, and fails the first time.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	token := r.Header.Get("Idempotency-Key")
	if !w.tokens[token] {
		w.tokens[token] = true
		w.asked = append(w.asked, r.URL.Path)
		body, _ := io.ReadAll(r.Body)
		w.bodies = append(w.bodies, string(body))
		http.Error(out, "not now", http.StatusServiceUnavailable)
	}
}

// send sends a command twice, as a client that got no answer, and returns the second answer.
func (w *world) send(key, path, body string) (code int, text string) {
	w.t.Helper()
	for range 2 {
		request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.server.URL+path,
			strings.NewReader(body))
		if err != nil {
			w.t.Fatal(err)
		}
		if body != "" && body[0] != '{' {
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		request.Header.Set("Idempotency-Key", key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			w.t.Fatal(err)
		}
		content, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		code, text = response.StatusCode, strings.TrimSpace(string(content))
	}
	return code, text
}

func (w *world) mustSend(key, path, body string) {
	w.t.Helper()
	if code, text := w.send(key, path, body); code != http.StatusOK {
		w.t.Errorf("%s: %d %s", path, code, text)
	}
}

// until waits for a condition.
func (w *world) until(what string, condition func() bool) {
	w.t.Helper()
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	for end := time.After(time.Minute); !condition(); {
		select {
		case <-ticks.C:
		case <-end:
			w.t.Fatalf("not in time: %s", what)
		}
	}
}

func (w *world) untilAsked(path string) {
	w.t.Helper()
	w.until(path, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.asked) > 0 && w.asked[len(w.asked)-1] == path
	})
}

func (w *world) untilState(id, state string) {
	w.t.Helper()
	w.untilShown("/orders/"+id, state)
}

// untilShown waits until the service shows a text.
func (w *world) untilShown(path, want string) {
	w.t.Helper()
	w.until(path+" is "+want, func() bool {
		code, text := w.get(path)
		return code == http.StatusOK && text == want
	})
}

func (w *world) get(path string) (code int, text string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.server.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, _ := io.ReadAll(response.Body)
	return response.StatusCode, strings.TrimSpace(string(content))
}

// mustHave compares all events, with what led to each, and checks that they are one conversation.
func (w *world) mustHave(conversation string, want ...string) {
	w.t.Helper()
	var got []string
	for e, err := range w.service.store.(event.Reader).ReadAll(w.t.Context(), event.ReadOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		if e.CorrelationID != conversation {
			w.t.Errorf("event %d is in the conversation %q", e.Position, e.CorrelationID)
		}
		got = append(got, fmt.Sprintf("%d %s by %s", e.Position, e.Type, e.CausationID))
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("the events are %q, want %q", got, want)
	}
}

func TestOrderIsPaid(t *testing.T) {
	onEachStore(t, time.Hour, func(w *world) {
		w.mustSend("c1", "/orders/7", `{"customer": "Ada", "cents": 4200}`)
		if code, text := w.get("/orders/7"); code != http.StatusOK || text != "placed" {
			t.Errorf("after the answer the list shows %d %s", code, text)
		}
		w.untilAsked("/payments/7")
		w.mustSend("p1", "/payments/7", url.Values{"reference": {"r1"}}.Encode())
		w.untilState("7", "paid")
		w.mustHave("c1",
			"1 OrderPlaced.v2 by c1",
			"2 PaymentRequested by default/1",
			"3 PaymentMade by p1",
			"4 OrderPaid by default/3")
		if code, text := w.send("c2", "/orders/7/cancel", ""); code != http.StatusConflict || text != ErrPaid.Error() {
			t.Errorf("%d %s", code, text)
		}
		for path, want := range map[string]int{"/orders/8/cancel": http.StatusNotFound,
			"/orders/order-7/cancel": http.StatusBadRequest} {
			if code, text := w.send("c3", path, ""); code != want {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
		if code, text := w.send("", "/orders/7/cancel", ""); code != http.StatusBadRequest {
			t.Errorf("without a key: %d %s", code, text)
		}
		if len(w.asked) != 1 {
			t.Errorf("the provider was asked %v", w.asked)
		}
	})
}

func TestCancelledOrderIsRefunded(t *testing.T) {
	onEachStore(t, time.Hour, func(w *world) {
		w.mustSend("c1", "/orders/7", `{"customer": "Ada", "cents": 4200}`)
		w.untilAsked("/payments/7")
		w.mustSend("c2", "/orders/7/cancel", "")
		w.mustSend("p1", "/payments/7", url.Values{"reference": {"r1"}}.Encode())
		w.untilAsked("/refunds/7")
		w.untilState("7", "cancelled")
	})
}

func TestDeclinedPaymentCancels(t *testing.T) {
	onEachStore(t, time.Hour, func(w *world) {
		w.mustSend("c1", "/orders/7", `{"customer": "Ada", "cents": 4200}`)
		w.untilAsked("/payments/7")
		if code, text := w.send("p0", "/payments/7", ""); code != http.StatusBadRequest {
			t.Errorf("an answer without a reference: %d %s", code, text)
		}
		w.mustSend("p1", "/payments/7", "reference=")
		w.untilState("7", "cancelled")
	})
}

// The events of release 1 are in the store as that release has written them.
func TestReleaseTwoReadsReleaseOne(t *testing.T) {
	onEachStore(t, time.Hour, func(w *world) {
		old := w.service.store.(event.Appender)
		for stream, events := range map[string][]event.Event{
			"order-5": {event.Untyped("OrderPlaced", json.RawMessage(`{"customer":"Ada","cents":4200}`))},
			"order-6": {
				event.New(release1.OrderPlaced{Customer: "Ada", Cents: 100}),
				event.New(release1.OrderCancelled{Reason: "late"}),
			},
			"payment-4": {event.Untyped("PaymentRequested", json.RawMessage(`{"cents":300}`))},
		} {
			if _, err := old.Append(t.Context(), stream, event.NoStream, events...); err != nil {
				t.Fatal(err)
			}
		}
		w.mustSend("c1", "/orders/7", `{"customer": "Bob", "cents": 1000, "currency": "USD"}`)
		w.mustSend("c2", "/orders/8", `{"customer": "Bob", "cents": 1}`) // by a client of release 1
		w.untilShown("/turnover/EUR", "4301")
		w.untilShown("/turnover/USD", "1000")
		w.untilState("5", "placed")
		w.untilState("6", "cancelled")
		order, err := orders.Load(t.Context(), w.service.store, "5")
		if err != nil || order.State != (Order{Placed: true, Cents: 42_00}) {
			t.Errorf("%+v, %v", order, err)
		}
		w.until("the provider is asked for each payment", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.bodies) == 5
		})
		slices.Sort(w.bodies)
		if want := []string{`{"cents":1,"currency":"EUR"}`, `{"cents":100,"currency":"EUR"}`,
			`{"cents":1000,"currency":"USD"}`, `{"cents":300}`,
			`{"cents":4200,"currency":"EUR"}`}; !slices.Equal(w.bodies, want) {
			t.Errorf("the provider was asked for %q", w.bodies)
		}
		w.mustSend("p1", "/payments/5", "reference=r1")
		w.untilState("5", "paid")
	})
}

func TestUnregisteredTypeIsRefused(t *testing.T) {
	onEachStore(t, time.Hour, func(w *world) {
		_, err := w.service.store.(event.Appender).Append(t.Context(), "order-7", event.Any,
			event.Untyped("OrderPayed", nil))
		if !errors.Is(err, eventtype.ErrNotRegistered) {
			t.Error(err)
		}
	})
}

func TestUnpaidOrderExpires(t *testing.T) {
	onEachStore(t, time.Millisecond, func(w *world) {
		w.mustSend("c1", "/orders/7", `{"customer": "Ada", "cents": 4200}`)
		w.untilState("7", "cancelled")
		order, err := orders.Load(t.Context(), w.service.store, "7")
		if err != nil || !order.State.Cancelled || order.Version != 2 {
			t.Errorf("%+v, %v", order, err)
		}
		if _, err := orders.Do(t.Context(), w.service.store, "7", pay("r"), aggregate.Key("late")); !errors.Is(err,
			ErrCancelled) {
			t.Error(err)
		}
	})
}
