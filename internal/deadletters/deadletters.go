// Package deadletters implements projection.DeadLetters over a store: it checks filters and limits, waits for commands, and
// explains errors.
package deadletters

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Store is what dead letters need of a store. An id selects one partition, or all if its partition is 0. Filters, states
// and pages are valid, and have their defaults.
type Store interface {
	// List returns a page of dead letters in the order of their positions. With NewestFirst, After is above all positions of
	// the page.
	List(ctx context.Context, id projection.ID, page projection.DeadLetterPage) ([]projection.DeadLetter, error)
	// Count counts the dead letters in these states.
	Count(ctx context.Context, id projection.ID, filter projection.DeadLetterFilter, states []projection.DeadLetterState) (int64, error)
	// Purge deletes dead letters that ended at least endedFor ago, at most limit of them, the oldest first.
	Purge(ctx context.Context, id projection.ID, filter projection.DeadLetterFilter, endedFor time.Duration, limit int) (deleted int64, err error)
	// Insert inserts a command durably, with a part for each partition, and notifies the owners of the leases. It returns
	// projection.ErrUnknownTenant or projection.ErrUnknownProjection if there is no such projection.
	Insert(ctx context.Context, id projection.ID, kind Kind, filter projection.DeadLetterFilter, limit int) (command int64, err error)
	// Cancel ends a command, as far as that needs no owner of a lease, notifies the owners, and returns the parts.
	Cancel(ctx context.Context, id projection.ID, command int64) ([]Part, error)
	// Parts returns the parts of a command, none if there is no such command.
	Parts(ctx context.Context, id projection.ID, command int64) ([]Part, error)
	// RunUnowned runs a part that calls no handler, if no living node owns its lease.
	RunUnowned(ctx context.Context, part Part) error
	// Known returns projection.ErrUnknownTenant or projection.ErrUnknownProjection if there is no such projection.
	Known(ctx context.Context, id projection.ID) error
	// Read is that of engine.Store.
	Read(ctx context.Context, tenant string, r engine.ReadRange) (engine.Page, error)
	// NotWithin is that of engine.Store.
	NotWithin(ctx context.Context) error
	// Fault classifies the error of a statement of the store.
	Fault(err error) *engine.Fault
}

// Kind is a kind of command.
type Kind string

const (
	Replay  Kind = "replay"
	Discard Kind = "discard"
)

// Part is a command for one partition. Row is the row of its lease. Done and Failed are its result so far. Unowned reports
// that it can run without a handler, and that no living node owns the lease.
type Part struct {
	ID           int64
	Row          int32
	Ended        bool
	Done, Failed int64
	Unowned      bool
}

// DeadLetters implements projection.DeadLetters.
type DeadLetters struct {
	store Store
	id    projection.ID
}

// Of returns the dead letters of a projection.
func Of(store Store, id projection.ID) *DeadLetters {
	return &DeadLetters{store: store, id: engine.FullID(id)}
}

func (d *DeadLetters) List(ctx context.Context, page projection.DeadLetterPage) (letters []projection.DeadLetter, err error) {
	defer d.explain(&err, "list")
	page.States, err = selected(page.DeadLetterFilter, page.States)
	switch {
	case err != nil:
		return nil, err
	case page.Limit < 0:
		return nil, fmt.Errorf("DeadLetterPage.Limit must not be negative: %d", page.Limit)
	case page.After < 0:
		return nil, fmt.Errorf("DeadLetterPage.After must not be negative: %d", page.After)
	}
	if page.Limit == 0 {
		page.Limit = 100
	}
	if page.NewestFirst && page.After == 0 {
		page.After = math.MaxInt64
	}
	letters, err = d.store.List(ctx, d.id, page)
	return letters, d.checked(ctx, err, int64(len(letters)))
}

// explain adds the operation to an error.
func (d *DeadLetters) explain(err *error, doing string) {
	if *err != nil {
		*err = fmt.Errorf("%s dead letters of %s: %w", doing, d.id, *err)
	}
}

// checked classifies the error of a statement. If the statement found no dead letter, checked returns an error unless
// the projection exists.
func (d *DeadLetters) checked(ctx context.Context, err error, found int64) error {
	if err == nil && found == 0 {
		err = d.store.Known(ctx, d.id)
	}
	if err != nil {
		return d.store.Fault(err)
	}
	return nil
}

func (d *DeadLetters) Get(ctx context.Context, id int64) (projection.DeadLetter, event.Envelope, error) {
	letters, err := d.List(ctx, projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{IDs: []int64{id}}, States: AllStates, Limit: 1})
	switch {
	case err != nil:
		return projection.DeadLetter{}, event.Envelope{}, err
	case len(letters) == 0:
		return projection.DeadLetter{}, event.Envelope{}, fmt.Errorf("dead letter %d of %s: %w", id, d.id, projection.ErrDeadLetterNotFound)
	}
	letter := letters[0]
	page, err := d.store.Read(ctx, d.id.Tenant, engine.ReadRange{After: letter.Position - 1, UpTo: letter.Position, Limit: 1})
	switch {
	case err != nil:
		return letter, event.Envelope{}, fmt.Errorf("event of dead letter %d of %s: %w", id, d.id, err)
	case len(page.Events) == 0:
		return letter, event.Envelope{}, fmt.Errorf("event of dead letter %d of %s: %w", id, d.id, projection.ErrEventGone)
	}
	e := page.Events[0]
	if e.Unreadable != nil {
		return letter, e, fmt.Errorf("event of dead letter %d of %s: %w", id, d.id, e.Unreadable)
	}
	return letter, e, nil
}

func (d *DeadLetters) Count(ctx context.Context, filter projection.DeadLetterFilter, states ...projection.DeadLetterState) (n int64, err error) {
	defer d.explain(&err, "count")
	if states, err = selected(filter, states); err != nil {
		return 0, err
	}
	n, err = d.store.Count(ctx, d.id, filter, states)
	return n, d.checked(ctx, err, n)
}

func (d *DeadLetters) Purge(ctx context.Context, filter projection.DeadLetterFilter, endedFor time.Duration, limit int) (deleted int64, err error) {
	defer d.explain(&err, "purge")
	err = bounded(filter, limit)
	if err == nil && endedFor < 0 {
		err = fmt.Errorf("endedFor must not be negative: %v", endedFor)
	}
	if err != nil {
		return 0, err
	}
	deleted, err = d.store.Purge(ctx, d.id, filter, endedFor, limit)
	return deleted, d.checked(ctx, err, deleted)
}
