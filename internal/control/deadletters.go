package control

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Known returns tenancy.ErrUnknown or projection.ErrUnknownProjection if there is no such projection.
func (p Letters) Known(ctx context.Context, id projection.ID) error {
	return p.db.View(ctx, func(v store.View) error { return Unknown(v, id) })
}

// List returns a page of dead letters in the order of their positions. With NewestFirst, After is above all positions
// of the page. Dead letters that are listed by their ids are read by these, and others a page of each partition, in the
// order of their positions.
func (p Letters) List(ctx context.Context, id projection.ID,
	page projection.DeadLetterPage) (letters []projection.DeadLetter, err error) {
	statement, direction := "dead_letters", 1
	if page.NewestFirst {
		statement, direction = "dead_letters_newest", -1
	}
	args := append(letterArgs(id, page.DeadLetterFilter), states(page.States), page.After, page.Limit)
	if page.IDs != nil {
		statement, args = "dead_letters_of_ids", append(args, direction)
	}
	err = p.db.View(ctx, func(v store.View) error {
		letters = nil
		l := projection.DeadLetter{Projection: id}
		row := []any{&l.Projection.Partition, &l.ID, &l.Position, &l.Stream, &l.Version, &l.Type, &l.BlockedByStream,
			&l.State, &l.Error, &l.Stack,
			&l.Attempts, &l.Replays, &l.FirstFailedAt, &l.LastFailedAt, &l.EndedAt, &l.OutOfOrder}
		return v.Each(statement, args, row, func() error {
			letters = append(letters, l)
			return nil
		})
	})
	return letters, err
}

// Count counts the dead letters in these states.
func (p Letters) Count(ctx context.Context, id projection.ID, filter projection.DeadLetterFilter,
	in []projection.DeadLetterState) (n int64, err error) {
	err = p.db.View(ctx, func(v store.View) error {
		_, err := v.One("count_dead_letters", append(letterArgs(id, filter), states(in)), &n)
		return err
	})
	return n, err
}

// Purge deletes dead letters that ended at least endedFor ago, at most limit of them, the oldest first. It is one
// statement.
func (p Letters) Purge(ctx context.Context, id projection.ID, filter projection.DeadLetterFilter,
	endedFor time.Duration, limit int) (deleted int64, err error) {
	err = p.db.Tx(ctx, func(tx store.Tx) error {
		letters, err := column[int64](tx, "purge_dead_letters", append(letterArgs(id, filter), endedFor, limit)...)
		deleted = int64(len(letters))
		return err
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// letterArgs returns the first arguments of all statements on dead letters.
func letterArgs(id projection.ID, f projection.DeadLetterFilter) []any {
	return append([]any{id.Tenant, id.Name, id.Partition}, filterArgs(f)...)
}

// filterArgs returns the arguments of a filter, in which null means any.
func filterArgs(f projection.DeadLetterFilter) []any {
	return []any{f.IDs, store.OrNull(f.Stream), store.OrNull(f.Type), store.OrNull(f.Error)}
}

// states returns states as plain texts, whose type a driver knows.
func states(states []projection.DeadLetterState) []string {
	names := make([]string, len(states))
	for i, state := range states {
		names[i] = string(state)
	}
	return names
}
