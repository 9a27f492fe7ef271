package service

import (
	"context"
	"fmt"
	"iter"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// Content is what a store has of one tenant.
type Content struct {
	State       tenantState
	Events      []event.Envelope
	Projections []Progress
	DeadLetters []projection.DeadLetter
	Applied     map[string][]int64
}

// Progress is the state of one partition of a projection.
type Progress struct {
	ID                          projection.ID
	Checkpoint, Parked, Skipped int64
	Paused                      bool
}

// Contents returns what a store has, by tenant. No node may run.
func Contents(ctx context.Context, store Store) (map[string]*Content, error) {
	a, err := newAdmin(store)
	if err != nil {
		return nil, err
	}
	status, err := a.Status(ctx, statusFilter{Limit: all})
	if err != nil {
		return nil, err
	}
	names, err := store.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	contents := make(map[string]*Content)
	for _, name := range names {
		contents[name], err = contentOf(ctx, store, name)
		if err != nil {
			return nil, fmt.Errorf("tenant %s: %w", name, err)
		}
	}
	for _, p := range status.Projections {
		c := contents[p.ID.Tenant]
		c.Projections = append(c.Projections, Progress{p.ID, p.Checkpoint, p.Parked, p.Skipped, p.State == statePaused})
		letters, err := store.DeadLetters(p.ID).List(ctx, projection.DeadLetterPage{Limit: all})
		if err != nil {
			return nil, fmt.Errorf("dead letters of %s: %w", p.ID, err)
		}
		c.DeadLetters = append(c.DeadLetters, letters...)
	}
	return contents, nil
}

// readAll returns all events of a tenant. The options of the stores had types of their own before event.ReadOptions.
func readAll[Options any](ctx context.Context, read func(context.Context,
	Options) iter.Seq2[event.Envelope, error]) iter.Seq2[event.Envelope, error] {
	return read(ctx, *new(Options))
}

// contentOf returns a content without projections.
func contentOf(ctx context.Context, store Store, name string) (*Content, error) {
	tenant, err := store.Tenant(name)
	if err != nil {
		return nil, err
	}
	var c Content
	c.State, err = tenant.State(ctx)
	if err != nil {
		return nil, err
	}
	for e, err := range tenant.Events(ctx) {
		if err != nil {
			return nil, err
		}
		c.Events = append(c.Events, e)
	}
	c.Applied, err = store.Applied(ctx, name)
	return &c, err
}
