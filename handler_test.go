package millrace_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/pgstore"
)

type opened struct {
	Owner string `json:"owner"`
}

func (opened) EventType() string { return "opened" }

// pointed has an event type that its zero value cannot name.
type pointed struct{ name *string }

func (p pointed) EventType() string { return *p.name }

type unnamed struct{}

func (unnamed) EventType() string { return "" }

// foreign is the handler of another store.
type foreign struct{}

func (foreign) Engine() handler.Handler {
	return handler.Each(func(context.Context, *sql.Tx, event.Envelope) error { return nil })
}

func ignore[T event.Typed](context.Context, pgx.Tx, event.Of[T]) error { return nil }

func TestInvalidHandlerIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	rt, err := millrace.New(millrace.Config{Store: stubStore{}})
	if err != nil {
		t.Fatal(err)
	}
	every := pgstore.Each(func(context.Context, pgx.Tx, event.Envelope) error { return nil })
	same := func(next millrace.HandleFunc) millrace.HandleFunc { return next }
	for want, p := range map[string]millrace.Projection{
		`event type "opened" is handled twice`: {
			Handler: pgstore.Route(pgstore.On(ignore[opened]), pgstore.On(ignore[opened])),
		},
		`Projection.Types must be empty: the handler handles the types ["opened"]`: {
			Handler: pgstore.On(ignore[opened]), Types: []string{"opened"},
		},
		"its handler takes *sql.Tx, but *pgstore.Store gives pgx.Tx": {Handler: foreign{}},
		"Projection.Handler must be set":                             {},
		"must be made by a constructor":                              {Handler: pgstore.Handler{}},
		"handler 2 of Route has no event type": {
			Handler: pgstore.Route(pgstore.On(ignore[opened]), every),
		},
		"Route has no handlers": {Handler: pgstore.Route()},
		"the event type of millrace_test.pointed by its zero value": {
			Handler: pgstore.On(ignore[pointed]),
		},
		"the event type of a handler must not be empty": {
			Handler: pgstore.On(ignore[unnamed]),
		},
		"the handler's function is nil": {Handler: pgstore.Each(nil)},
		"Projection.Middleware must not contain nil: middleware 2": {
			Handler: every, Middleware: []millrace.Middleware{same, nil},
		},
		"middleware 1 of 1: it returned a nil function": {
			Handler:    every,
			Middleware: []millrace.Middleware{func(millrace.HandleFunc) millrace.HandleFunc { return nil }},
		},
		"the function of Deliver is nil": {Handler: millrace.Deliver(nil)},
	} {
		p.Name = "p"
		err := rt.Register(millrace.Projection{Name: "good", Handler: every}, p)
		if err == nil || !strings.HasPrefix(err.Error(), `register projection "p": `) ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", want, err)
		}
	}
	empty := millrace.Projection{Name: "empty", Handler: pgstore.On(ignore[opened]), Types: []string{}}
	if err := rt.Register(empty); err != nil {
		t.Errorf("empty types: %v", err)
	}
	// None of the others was registered.
	if err := rt.Register(millrace.Projection{Name: "good", Handler: every},
		millrace.Projection{Name: "fine", Handler: pgstore.On(ignore[opened])}); err != nil {
		t.Error(err)
	}
}
