package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
)

// DeadLetters gives access to the parked events of a projection. It is safe for concurrent use, in any process: the
// owner of the projection's lease makes all changes.
type DeadLetters struct {
	store *Store
	id    projection.ID
}

// DeadLetters returns the dead letters of a projection, of all its partitions unless id names one. Its methods return projection.ErrUnknownTenant or
// projection.ErrUnknownProjection if there is no such projection. A projection exists after its first run.
func (s *Store) DeadLetters(id projection.ID) *DeadLetters {
	return &DeadLetters{store: s, id: engine.FullID(id)}
}

// List returns dead letters in order of their positions.
func (d *DeadLetters) List(ctx context.Context, page projection.DeadLetterPage) (letters []projection.DeadLetter, err error) {
	defer d.explain(&err, "list")
	args, err := d.args(page.DeadLetterFilter, page.States)
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
	rows, _ := d.store.pool.Query(ctx, d.store.control.deadLetters(page.NewestFirst), append(args, page.After, page.Limit)...)
	letters, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l projection.DeadLetter, err error) {
		l.Projection = d.id
		err = row.Scan(&l.Projection.Partition, &l.ID, &l.Position, &l.Stream, &l.Version, &l.Type, &l.BlockedByStream, &l.State, &l.Error, &l.Stack, &l.Attempts, &l.Replays,
			&l.FirstFailedAt, &l.LastFailedAt, orZero{&l.EndedAt})
		return l, err
	})
	return letters, d.checked(ctx, err, int64(len(letters)))
}

// explain adds what was being done to an error.
func (d *DeadLetters) explain(err *error, doing string) {
	if *err != nil {
		*err = fmt.Errorf("%s dead letters of %s: %w", doing, d.id, *err)
	}
}

// checked classifies the error of a statement. If the statement found no dead letter, checked returns an error unless
// the projection exists.
func (d *DeadLetters) checked(ctx context.Context, err error, found int64) error {
	if err == nil && found == 0 {
		err = d.store.unknown(ctx, d.store.pool, d.id)
	}
	if err != nil {
		return storeFault(err)
	}
	return nil
}

// deadLetters returns the statement that lists dead letters in one order or the other.
func (c *controlSchema) deadLetters(newestFirst bool) string {
	if newestFirst {
		return sqltext.Fill(c.sql("dead_letters"), "{beyond}", "<", "{direction}", "desc")
	}
	return sqltext.Fill(c.sql("dead_letters"), "{beyond}", ">", "{direction}", "asc")
}

// Get returns a dead letter in any state, and its event. It returns projection.ErrDeadLetterNotFound if the projection
// has no dead letter with that id. If the event is gone, it returns the dead letter and projection.ErrEventGone.
func (d *DeadLetters) Get(ctx context.Context, id int64) (projection.DeadLetter, event.Envelope, error) {
	letters, err := d.List(ctx, projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{IDs: []int64{id}}, States: allStates, Limit: 1})
	switch {
	case err != nil:
		return projection.DeadLetter{}, event.Envelope{}, err
	case len(letters) == 0:
		return projection.DeadLetter{}, event.Envelope{}, fmt.Errorf("dead letter %d of %s: %w", id, d.id, projection.ErrDeadLetterNotFound)
	}
	letter := letters[0]
	page, err := port{d.store}.Read(ctx, d.id.Tenant, engine.ReadRange{After: letter.Position - 1, UpTo: letter.Position, Limit: 1})
	switch {
	case err != nil:
		return letter, event.Envelope{}, fmt.Errorf("event of dead letter %d of %s: %w", id, d.id, err)
	case len(page.Events) == 0:
		return letter, event.Envelope{}, fmt.Errorf("event of dead letter %d of %s: %w", id, d.id, projection.ErrEventGone)
	}
	return letter, page.Events[0], nil
}

// Count counts dead letters in these states. Without states it counts parked and replaying ones.
func (d *DeadLetters) Count(ctx context.Context, filter projection.DeadLetterFilter, states ...projection.DeadLetterState) (n int64, err error) {
	defer d.explain(&err, "count")
	args, err := d.args(filter, states)
	if err != nil {
		return 0, err
	}
	err = d.store.pool.QueryRow(ctx, d.store.control.sql("count_dead_letters"), args...).Scan(&n)
	return n, d.checked(ctx, err, n)
}

// Replay applies at most limit parked events again, the oldest first, by the projection's handler on the node that runs
// it. Each event is a fenced transaction of its own, which does not move the checkpoint. A parked stream is replayed as
// a whole and in order, including events that the filter does not select. After its last event, the stream continues
// like any other. If a replay fails, the event stays parked with one attempt more, and so do the later events of its
// stream. An event is applied once, even if several replays select it.
//
// Replay returns after the last event. It waits while the projection is paused or no node runs it. If ctx ends first,
// it returns projection.ErrCommandPending, and the replay continues unless Cancel ends it. If the connection fails
// while the command is sent, the command may have been accepted or not.
func (d *DeadLetters) Replay(ctx context.Context, filter projection.DeadLetterFilter, limit int) (projection.CommandResult, error) {
	return d.command(ctx, "replay", filter, limit)
}

// Discard gives up at most limit parked events: they will not be applied. Later events of their streams stay parked. If
// no node owns the projection's lease, for instance while it is paused, Discard runs at once. Otherwise it waits as
// Replay does.
func (d *DeadLetters) Discard(ctx context.Context, filter projection.DeadLetterFilter, limit int) (projection.CommandResult, error) {
	return d.command(ctx, "discard", filter, limit)
}

// Purge deletes dead letters that were resolved or discarded at least endedFor ago, at most limit of them, the oldest
// first. It returns how many it deleted.
func (d *DeadLetters) Purge(ctx context.Context, filter projection.DeadLetterFilter, endedFor time.Duration, limit int) (deleted int64, err error) {
	defer d.explain(&err, "purge")
	args, err := d.args(filter, []projection.DeadLetterState{projection.DeadLetterResolved, projection.DeadLetterDiscarded})
	if err == nil {
		err = bounded(filter, limit)
	}
	if err == nil && endedFor < 0 {
		err = fmt.Errorf("endedFor must not be negative: %v", endedFor)
	}
	if err != nil {
		return 0, err
	}
	tag, err := d.store.pool.Exec(ctx, d.store.control.sql("purge_dead_letters"), append(args, endedFor.Seconds(), limit)...)
	return tag.RowsAffected(), d.checked(ctx, err, tag.RowsAffected())
}

// allStates are the states of dead letters.
var allStates = []projection.DeadLetterState{projection.DeadLetterParked, projection.DeadLetterReplaying, projection.DeadLetterResolved, projection.DeadLetterDiscarded}

// selectsNothing reports whether no field of a filter is set.
func selectsNothing(f projection.DeadLetterFilter) bool {
	return !f.All && len(f.IDs) == 0 && f.Stream == "" && f.Type == "" && f.Error == ""
}

func bounded(filter projection.DeadLetterFilter, limit int) error {
	switch {
	case limit < 1:
		return fmt.Errorf("limit must be at least 1: %d", limit)
	case selectsNothing(filter):
		return errors.New("the filter must not be empty: set All to select all")
	}
	return nil
}

// args returns the first arguments of all statements on dead letters.
func (d *DeadLetters) args(filter projection.DeadLetterFilter, states []projection.DeadLetterState) ([]any, error) {
	if err := errors.Join(valid.Text("Stream", filter.Stream), valid.Text("Type", filter.Type), valid.Text("Error", filter.Error)); err != nil {
		return nil, err
	}
	if some := filter; filter.All {
		if some.All = false; !selectsNothing(some) {
			return nil, errors.New("DeadLetterFilter.All must not be set with other fields")
		}
	}
	if len(states) == 0 {
		states = []projection.DeadLetterState{projection.DeadLetterParked, projection.DeadLetterReplaying}
	}
	names := make([]string, len(states))
	for i, state := range states {
		if !slices.Contains(allStates, state) {
			return nil, fmt.Errorf("unknown state %s", excerpt.Quoted(string(state)))
		}
		names[i] = string(state)
	}
	return append([]any{d.id.Tenant, d.id.Name, d.id.Partition, names}, filterArgs(filter)...), nil
}

func filterArgs(filter projection.DeadLetterFilter) []any {
	return []any{filter.IDs, nullable(filter.Stream), nullable(filter.Type), nullable(filter.Error)}
}
