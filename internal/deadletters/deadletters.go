// Package deadletters implements projection.DeadLetters over a store: it checks filters and limits, waits for commands,
// and explains errors.
package deadletters

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// DeadLetters implements projection.DeadLetters.
type DeadLetters struct {
	plane control.Plane
	store store.Driver
	id    projection.ID
}

// Of returns the dead letters of a projection.
func Of(driver store.Driver, id projection.ID) *DeadLetters {
	return &DeadLetters{plane: control.On(driver), store: driver, id: engine.FullID(id)}
}

func (d *DeadLetters) List(ctx context.Context, page projection.DeadLetterPage) (letters []projection.DeadLetter,
	err error) {
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
	letters, err = d.plane.List(ctx, d.id, page)
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
		err = d.plane.Known(ctx, d.id)
	}
	if err != nil {
		return d.plane.Classify(err).OfStore()
	}
	return nil
}

func (d *DeadLetters) Get(ctx context.Context, id int64) (projection.DeadLetter, event.Envelope, error) {
	letters, err := d.List(ctx,
		projection.DeadLetterPage{
			DeadLetterFilter: projection.DeadLetterFilter{IDs: []int64{id}}, States: AllStates, Limit: 1,
		})
	switch {
	case err != nil:
		return projection.DeadLetter{}, event.Envelope{}, err
	case len(letters) == 0:
		return projection.DeadLetter{}, event.Envelope{},
			fmt.Errorf("dead letter %d of %s: %w", id, d.id, projection.ErrDeadLetterNotFound)
	}
	letter := letters[0]
	page, err := d.store.Read(ctx, d.id.Tenant, engine.ReadRange{After: letter.Position - 1,
		UpTo: letter.Position, Limit: 1})
	switch {
	case err != nil:
		return letter, event.Envelope{}, fmt.Errorf("event of dead letter %d of %s: %w", id, d.id, err)
	case len(page.Events) == 0:
		return letter, event.Envelope{}, fmt.Errorf("event of dead letter %d of %s: %w",
			id, d.id, projection.ErrEventGone)
	}
	e := page.Events[0]
	if e.Unreadable != nil {
		return letter, e, fmt.Errorf("event of dead letter %d of %s: %w", id, d.id, e.Unreadable)
	}
	return letter, e, nil
}

func (d *DeadLetters) Count(ctx context.Context, filter projection.DeadLetterFilter,
	states ...projection.DeadLetterState) (n int64, err error) {
	defer d.explain(&err, "count")
	states, err = selected(filter, states)
	if err != nil {
		return 0, err
	}
	n, err = d.plane.Count(ctx, d.id, filter, states)
	return n, d.checked(ctx, err, n)
}

func (d *DeadLetters) Purge(ctx context.Context, filter projection.DeadLetterFilter, endedFor time.Duration,
	limit int) (deleted int64, err error) {
	defer d.explain(&err, "purge")
	err = bounded(filter, limit)
	if err == nil && endedFor < 0 {
		err = fmt.Errorf("endedFor must not be negative: %v", endedFor)
	}
	if err != nil {
		return 0, err
	}
	deleted, err = d.plane.Purge(ctx, d.id, filter, endedFor, limit)
	return deleted, d.checked(ctx, err, deleted)
}
