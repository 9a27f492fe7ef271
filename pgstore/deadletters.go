package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/deadletters"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
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
	return s.unknown(ctx, s.pool, id)
}

func (s letterStore) List(ctx context.Context, id projection.ID, page projection.DeadLetterPage) ([]projection.DeadLetter, error) {
	args := append(letterArgs(id, page.DeadLetterFilter, page.States), page.After, page.Limit)
	rows, _ := s.pool.Query(ctx, s.control.deadLetters(page.NewestFirst), args...)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l projection.DeadLetter, err error) {
		l.Projection = id
		err = row.Scan(&l.Projection.Partition, &l.ID, &l.Position, &l.Stream, &l.Version, &l.Type, &l.BlockedByStream, &l.State, &l.Error, &l.Stack, &l.Attempts, &l.Replays,
			&l.FirstFailedAt, &l.LastFailedAt, orZero{&l.EndedAt})
		return l, err
	})
}

// deadLetters returns the statement that lists dead letters in one order or the other.
func (c *controlSchema) deadLetters(newestFirst bool) string {
	if newestFirst {
		return sqltext.Fill(c.sql("dead_letters"), "{beyond}", "<", "{direction}", "desc")
	}
	return sqltext.Fill(c.sql("dead_letters"), "{beyond}", ">", "{direction}", "asc")
}

func (s letterStore) Count(ctx context.Context, id projection.ID, filter projection.DeadLetterFilter, states []projection.DeadLetterState) (n int64, err error) {
	err = s.pool.QueryRow(ctx, s.control.sql("count_dead_letters"), letterArgs(id, filter, states)...).Scan(&n)
	return n, err
}

func (s letterStore) Purge(ctx context.Context, id projection.ID, filter projection.DeadLetterFilter, endedFor time.Duration, limit int) (int64, error) {
	if err := s.notWithin(ctx); err != nil {
		return 0, err
	}
	ended := []projection.DeadLetterState{projection.DeadLetterResolved, projection.DeadLetterDiscarded}
	tag, err := s.pool.Exec(ctx, s.control.sql("purge_dead_letters"), append(letterArgs(id, filter, ended), endedFor.Seconds(), limit)...)
	return tag.RowsAffected(), err
}

// letterArgs returns the first arguments of all statements on dead letters.
func letterArgs(id projection.ID, filter projection.DeadLetterFilter, states []projection.DeadLetterState) []any {
	names := make([]string, len(states)) // the driver knows the plain type without asking the server
	for i, state := range states {
		names[i] = string(state)
	}
	return append([]any{id.Tenant, id.Name, id.Partition, names}, filterArgs(filter)...)
}

func filterArgs(filter projection.DeadLetterFilter) []any {
	return []any{filter.IDs, store.OrNull(filter.Stream), store.OrNull(filter.Type), store.OrNull(filter.Error)}
}
