// Package service is a service on millrace. Package tests/upgrade builds its source twice: with the library of an
// earlier release, and with this one. So it uses only public names that both have.
package service

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// soon is how often nodes check for changes.
const soon = 200 * time.Millisecond

// bad is the type of events that fail in every projection until the service is mended.
const bad = "Bad"

// all is more than the rows of any page.
const all = 10_000

// Store is a store of either kind, with the read model of the projections.
type Store interface {
	millrace.Store
	Close()
	Migrate(ctx context.Context) error
	CreateTenants(ctx context.Context, names ...string) error
	ArchiveTenant(ctx context.Context, name string) error
	Tenants(ctx context.Context) ([]string, error)
	DeadLetters(id projection.ID) projection.DeadLetters
	Tenant(name string) (Tenant, error)
	// Applied returns the positions of the tenant's events that each projection has handled, in the order of their
	// transactions.
	Applied(ctx context.Context, tenant string) (map[string][]int64, error)

	prepare(ctx context.Context) error
	// handler returns a handler that records an event unless check returns an error.
	handler(check func(event.Envelope) error) millrace.Handler
	// record records an event in a transaction of its own.
	record(ctx context.Context, id projection.ID, position int64) error
}

// Tenant is a tenant of either kind of store.
type Tenant interface {
	Append(ctx context.Context, stream string, expected event.Expected, events ...event.Event) (event.Appended, error)
	State(ctx context.Context) (tenantState, error)
	Events(ctx context.Context) iter.Seq2[event.Envelope, error]
}

// Open opens and migrates the store at a place: a DSN, or the path of a file. It creates the table of the read model.
func Open(ctx context.Context, place string) (Store, error) {
	store, err := open(ctx, place)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(store.Migrate(ctx), store.prepare(ctx)); err != nil {
		store.Close()
		return nil, err
	}
	return store, nil
}

func open(ctx context.Context, place string) (Store, error) {
	if strings.Contains(place, "://") {
		return openPostgres(ctx, place)
	}
	return openFile(ctx, place)
}

// Node configures a runtime.
type Node struct {
	Name        string
	Projections []string
	// Mended makes the projections handle all events. Otherwise those of the type bad fail.
	Mended bool
}

// Runtime returns a runtime that notices changes quickly. "shares" has partitions, and "mails" delivers.
func (n Node) Runtime(store Store) (*millrace.Runtime, error) {
	rt, err := millrace.New(quick(store, n.Name))
	if err != nil {
		return nil, err
	}
	check := func(e event.Envelope) error {
		if e.Type == bad && !n.Mended {
			return fmt.Errorf("the event at %d is bad", e.Position)
		}
		return nil
	}
	for _, name := range n.Projections {
		p := millrace.Projection{Name: name, Handler: store.handler(check),
			Retry:     projection.RetryPolicy{MaxAttempts: 1},
			OnFailure: projection.ActionParkStream}
		switch name {
		case "shares":
			p.Partitions = 3
		case "mails":
			p.Handler = millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
				if err := check(e.Envelope); err != nil {
					return err
				}
				id, _ := millrace.ProjectionFrom(ctx)
				return store.record(ctx, id, e.Position)
			})
		}
		if err := rt.Register(p); err != nil {
			return nil, err
		}
	}
	return rt, nil
}
