package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/millrace-go/millrace/internal/deadletters"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// DeadLetters returns the dead letters of a projection, of all its partitions unless id names one.
func (s *Store) DeadLetters(id projection.ID) projection.DeadLetters {
	return deadletters.Of(letterStore{s.port()}, id)
}

// letterStore implements deadletters.Store.
type letterStore struct{ port }

func (letterStore) Fault(err error) *engine.Fault { return storeFault(err) }

func (s letterStore) Known(ctx context.Context, id projection.ID) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return unknownProjection(ctx, s.readers, id)
}

func (s letterStore) List(ctx context.Context, id projection.ID, page projection.DeadLetterPage) (letters []projection.DeadLetter, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	statement, direction := "dead_letters", 1
	if page.NewestFirst {
		statement, direction = "dead_letters_newest", -1
	}
	args := append(letterArgs(id, page.DeadLetterFilter, page.States), page.After, page.Limit)
	if page.IDs != nil {
		statement, args = "dead_letters_of_ids", append(args, direction)
	}
	var l projection.DeadLetter
	row := []any{&l.Projection.Partition, &l.ID, &l.Position, &l.Stream, &l.Version, &l.Type, &l.BlockedByStream, &l.State, &l.Error, &l.Stack, &l.Attempts, &l.Replays,
		micros{&l.FirstFailedAt}, micros{&l.LastFailedAt}, micros{&l.EndedAt}}
	l.Projection = id
	err = each(ctx, s.readers, statement, args, row, func() error {
		letters = append(letters, l)
		return nil
	})
	return letters, err
}

func (s letterStore) Count(ctx context.Context, id projection.ID, filter projection.DeadLetterFilter, states []projection.DeadLetterState) (n int64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	_, err = runOne(ctx, s.readers, "count_dead_letters", letterArgs(id, filter, states), &n)
	return n, err
}

func (s letterStore) Purge(ctx context.Context, id projection.ID, filter projection.DeadLetterFilter, endedFor time.Duration, limit int) (deleted int64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	args := append([]any{id.Tenant, id.Name, id.Partition}, filterArgs(filter)...)
	args = append(args, time.Now().Add(-endedFor).UnixMicro(), limit)
	err = s.transact(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, queries.Text("purge_dead_letters"), args...)
		if err != nil {
			return err
		}
		deleted, err = result.RowsAffected()
		return err
	})
	return deleted, err
}

// letterArgs returns the arguments of count_dead_letters.sql.
func letterArgs(id projection.ID, filter projection.DeadLetterFilter, states []projection.DeadLetterState) []any {
	return append([]any{id.Tenant, id.Name, id.Partition, list(states)}, filterArgs(filter)...)
}

// filterArgs returns the arguments of a filter, in which null means any.
func filterArgs(filter projection.DeadLetterFilter) []any {
	args := []any{nil, store.OrNull(filter.Stream), store.OrNull(filter.Type), store.OrNull(filter.Error)}
	if filter.IDs != nil {
		args[0] = list(filter.IDs)
	}
	return args
}
