package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

type opened struct {
	Owner string `json:"owner"`
}

func (opened) EventType() string { return "opened" }

type deposited struct {
	Entries []struct {
		Amount int `json:"amount"`
	} `json:"entries"`
}

func (deposited) EventType() string { return "deposited" }

func TestTypedHandlersGetTheirEventsInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	var mu sync.Mutex
	var calls []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, fmt.Sprintf(format, args...))
	}
	rt := b.Runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Route(
		pgstore.On(func(_ context.Context, tx pgx.Tx, e event.Of[opened]) error {
			note("%d %s %v", e.Version, e.Body.Owner, tx != nil)
			return nil
		}),
		pgstore.OnBatch(func(_ context.Context, _ pgx.Tx, events []event.Of[deposited]) error {
			note("%d deposits from %d on", len(events), events[0].Version)
			return nil
		}),
	)})
	events := []event.Event{event.Untyped("opened", map[string]any{"owner": "Ada", "unknown": 1}), event.New(deposited{}), event.Untyped("other", nil),
		event.New(deposited{}), event.New(opened{"Bob"}), event.New(deposited{})}
	if _, err := b.store.Append(b.Ctx, "s", event.NoStream, events...); err != nil {
		t.Fatal(err)
	}
	b.RunUntilIdle(rt)
	if got, want := strings.Join(calls, "; "), "1 Ada true; 2 deposits from 2 on; 5 Bob true; 1 deposits from 6 on"; got != want {
		t.Errorf("called for %s, want %s", got, want)
	}
}

// What does not decode never will: it is parked at once, and the error says where it stands. Other events are handled.
func TestBodyThatDoesNotDecodeIsParkedAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	entries := []map[string]any{{"amount": 1}, {"amount": "2"}}
	result, err := b.store.Append(b.Ctx, "s", event.Any, event.Untyped("deposited", map[string]any{"entries": entries}), event.New(deposited{}))
	b.Must(err)
	bad := result.Positions[0]
	var handled sync.Map
	count := func(name string, n int) {
		old, _ := handled.LoadOrStore(name, 0)
		handled.Store(name, old.(int)+n)
	}
	handlers := map[string]millrace.Handler{
		"one": pgstore.On(func(context.Context, pgx.Tx, event.Of[deposited]) error { count("one", 1); return nil }),
		"all": pgstore.OnBatch(func(_ context.Context, _ pgx.Tx, events []event.Of[deposited]) error {
			count("all", len(events))
			return nil
		}),
		"own": pgstore.Each(func(_ context.Context, _ pgx.Tx, e event.Envelope) error {
			_, err := event.As[deposited](e)
			if err == nil {
				count("own", 1)
			}
			return err
		}),
	}
	var projections []millrace.Projection
	for name, h := range handlers {
		projections = append(projections, millrace.Projection{Name: name, Handler: h})
	}
	b.Idle(projections...)
	for name := range handlers {
		letters := b.Letters(name)
		want := fmt.Sprintf(`decode event %d (deposited of stream "s") as postgres_test.deposited at entries[1].amount: `, bad)
		if len(letters) != 1 || letters[0].Position != bad || letters[0].Attempts != 1 || !strings.Contains(letters[0].Error, want) {
			t.Errorf("%s: parked %+v, want %q", name, letters, want)
		}
		if n, _ := handled.Load(name); n != 1 {
			t.Errorf("%s: %v events were handled", name, n)
		}
	}
}
