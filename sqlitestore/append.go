package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/tenancy"
)

const (
	// positionBits is the number of bits of an event's id that are its position. The others are the tenant's number.
	positionBits = 40
	lastPosition = 1<<positionBits - 1
	// expireEvery is the average number of keyed appends for each append that deletes old keys. Such an append deletes
	// up to 64 keys. So keys are deleted four times as fast as they are inserted.
	expireEvery = 16
)

// Append appends events to a stream, all or none, and wakes the projections that wait for them. Appends that are called
// at the same time share one transaction, and so one sync of the disk. They may share that of a batch that runs
// meanwhile. No append waits for others to be called.
//
// It returns an *event.VersionConflictError if the stream is not in the expected state, event.ErrKeyReused if the
// idempotency key was used for another stream, and tenancy.ErrArchived or ErrDropping if the tenant
// takes no appends. Events that cannot be stored are refused before anything is written. If the commit fails, the
// events may have been appended or not. The call can be repeated safely if it has an idempotency key or expects a
// version. When ctx ends, an append that still waits fails and appends nothing. An append that has begun returns its
// result.
func (t *Tenant) Append(ctx context.Context, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error) {
	asked := event.Appending{Tenant: t.name, Stream: stream, Expected: expected, Events: events}
	return t.store.middleware.Around(ctx, asked, t.appendToFile)
}

// appendToFile is Append within its middleware.
func (t *Tenant) appendToFile(ctx context.Context, asked event.Appending) (event.Appended, error) {
	failed := func(err error) (event.Appended, error) {
		return event.Appended{}, t.wrap("append to", asked.Stream, err)
	}
	a, err := eventlog.NewAppend(t.store.opts.Types.Engine(), asked.Stream, asked.Expected, asked.Events)
	if err != nil {
		return failed(err)
	}
	if err := t.store.notWithin(ctx); err != nil {
		return failed(err)
	}
	if err := t.store.ready(ctx); err != nil {
		return failed(err)
	}
	result, err := t.store.writer.append(ctx, newWaitingAppend(a,
		func(ctx context.Context, tx *sql.Tx) (event.Appended, error) {
			return t.apply(ctx, tx, a)
		}))
	if err != nil {
		return failed(err)
	}
	if !result.Repeated {
		t.store.wakes.Wake(t.name, result.Last(), nil)
	}
	return result, nil
}

// AppendTx is Append in a transaction of the caller: the transaction of InTx, or a transaction of the caller's own
// connection to the file. The events become visible when it commits. Call Wake after the commit, so that projections
// receive the events at once. InTx, and the batch of a handler, do so themselves.
//
// After a version conflict the transaction is still usable, and so it is after any other error of AppendTx that
// does not end the transaction. Calls of AppendTx with the same tx run one after the other. If one fails, it may also
// undo other statements of tx that ran at the same time.
func (t *Tenant) AppendTx(ctx context.Context, tx *sql.Tx, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error) {
	asked := event.Appending{Tenant: t.name, Stream: stream, Expected: expected, Events: events}
	return t.store.middleware.AroundTx(ctx, t.db, asked,
		func(ctx context.Context, asked event.Appending) (event.Appended, error) {
			return t.appendToTx(ctx, tx, asked)
		})
}

// Wake wakes the projections of the tenant in this process. Those of others notice the events within 100 ms. Call it
// after the commit of a transaction of your own in which AppendTx has appended. It never blocks, and a call for nothing
// costs one read. Append, InTx and batches of handlers wake by themselves.
func (t *Tenant) Wake() { t.store.wakes.Wake(t.name, engine.UnknownPosition, nil) }

// appendToTx is AppendTx within its middleware.
func (t *Tenant) appendToTx(ctx context.Context, tx *sql.Tx, asked event.Appending) (event.Appended, error) {
	failed := func(err error) (event.Appended, error) {
		return event.Appended{}, t.wrap("append to", asked.Stream, err)
	}
	a, err := eventlog.NewAppend(t.store.opts.Types.Engine(), asked.Stream, asked.Expected, asked.Events)
	if err != nil {
		return failed(err)
	}
	if err := t.store.ready(ctx); err != nil {
		return failed(err)
	}
	waiting := &waitingAppend{
		apply: func(ctx context.Context, tx *sql.Tx) (event.Appended, error) { return t.apply(ctx, tx, a) },
	}
	if err := t.store.appendWithin(ctx, tx, waiting); err != nil {
		return failed(err)
	}
	if waiting.err != nil {
		return failed(waiting.err)
	}
	if to, ok := t.store.appended.Load(tx); ok && !waiting.result.Repeated {
		to.(*dirtied).add(t.name)
	}
	return waiting.result, nil
}

// appendWithin runs an append in a transaction of the caller. An error means that nothing was appended, and the whole
// transaction may be over.
func (s *Store) appendWithin(ctx context.Context, tx *sql.Tx, a *waitingAppend) error {
	return s.within(ctx, tx, func() error { return inSavepoint(ctx, tx, a) })
}

// within runs fn in a transaction of the caller, which no other call of within uses meanwhile.
func (s *Store) within(ctx context.Context, tx *sql.Tx, fn func() error) error {
	defer s.appending.lock(tx)()
	if _, lent := s.appended.Load(tx); !lent { // a connection of the caller's own
		if _, err := s.writer.checkObjects(ctx, tx); err != nil {
			return err
		}
	}
	return fn()
}

// streamState is the state that an append needs. lifecycle is the state of the tenant. key is the key of an earlier
// append with the same key; its stream is not valid if there was none.
type streamState struct {
	tenant, head, version int64
	lifecycle             tenancy.State
	key                   struct {
		stream      sql.NullString
		first, last sql.NullInt64
	}
}

// apply runs an append in a transaction. The file has one writer, so nothing changes between the query and the writes.
func (t *Tenant) apply(ctx context.Context, tx *sql.Tx, a eventlog.Append) (event.Appended, error) {
	var key any
	if a.Keyed {
		key = a.Key
	}
	var state streamState
	err := tx.QueryRowContext(ctx, queries.Text("append_state"), t.name, a.Stream, key).Scan(&state.tenant,
		&state.lifecycle, &state.head, &state.version,
		&state.key.stream, &state.key.first, &state.key.last)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return event.Appended{}, t.unknown()
	case err != nil:
		return event.Appended{}, err
	}
	if err := t.closed(state.lifecycle); err != nil {
		return event.Appended{}, err
	}
	if state.key.stream.Valid {
		return repeated(ctx, tx, a, state)
	}
	if version, bound := a.Expected.Version(); bound && version != state.version {
		return event.Appended{}, a.Conflict(state.version)
	}
	return t.insert(ctx, tx, a, state)
}

// repeated returns the result of the first append with the key.
func repeated(ctx context.Context, tx *sql.Tx, a eventlog.Append, state streamState) (event.Appended, error) {
	if err := a.UsedFor(state.key.stream.String); err != nil {
		return event.Appended{}, err
	}
	positions, err := column[int64](ctx, tx, "positions_of_versions", state.tenant, a.Stream, state.key.first.Int64,
		state.key.last.Int64)
	if err != nil {
		return event.Appended{}, err
	}
	return event.Appended{Positions: positions, Version: state.key.last.Int64, Repeated: true}, nil
}

// insert inserts the events and everything that follows from them.
func (t *Tenant) insert(ctx context.Context, tx *sql.Tx, a eventlog.Append, state streamState) (event.Appended, error) {
	n, now := int64(len(a.Types)), time.Now()
	if n > lastPosition-state.head {
		return event.Appended{}, fmt.Errorf("the tenant is at position %d, and %d is the last one",
			state.head, int64(lastPosition))
	}
	result := event.Appended{Positions: make([]int64, n), Version: state.version + n}
	slot := partition.Slot(a.Stream)
	var buffer []byte
	for i := range n {
		result.Positions[i] = state.head + i + 1
		id, version := state.tenant<<positionBits+result.Positions[i], state.version+i+1
		var sum int64
		at := now
		if a.Times != nil && a.Times[i] != nil {
			at = *a.Times[i]
		}
		buffer, sum = checksum(buffer, id, version, at.UnixMicro(), a.Stream, a.Types[i], a.Bodies[i], a.Headers[i],
			a.Causations[i], a.Correlations[i])
		err := changeOne(ctx, tx, "insert_event", id, slot, a.Stream, version, a.Types[i], a.Bodies[i], a.Headers[i],
			a.Causations[i], a.Correlations[i],
			at.UnixMicro(), sum)
		if isTaken(err) {
			err = fmt.Errorf("%w: position %d, or version %d of %s, is taken: %w", ErrCorrupt, result.Positions[i],
				version, excerpt.Quoted(a.Stream), err)
		}
		if err != nil {
			return event.Appended{}, err
		}
	}
	if err := changeOne(ctx, tx, "set_stream_version", state.tenant, a.Stream, result.Version); err != nil {
		return event.Appended{}, err
	}
	if err := changeOne(ctx, tx, "set_head", state.tenant, state.head+n); err != nil {
		return event.Appended{}, err
	}
	if !a.Keyed {
		return result, nil
	}
	if err := execute(ctx, tx, "insert_key", state.tenant, a.Key, a.Stream, state.version+1, result.Version,
		now.UnixMicro()); err != nil {
		return event.Appended{}, err
	}
	if retention := t.store.opts.KeyRetention; retention > 0 && rand.IntN(expireEvery) == 0 {
		return result, execute(ctx, tx, "expire_keys", now.Add(-retention).UnixMicro())
	}
	return result, nil
}

// changeOne executes a statement that changes one row. A trigger that the store has not seen may swallow the row.
func changeOne(ctx context.Context, tx *sql.Tx, statement string, args ...any) error {
	changed, err := runOne(ctx, tx, statement, args)
	if err == nil && !changed {
		err = fmt.Errorf("%w: %s changed no row", ErrForeignObject, statement)
	}
	return err
}

// isTaken reports whether an event with the same key exists.
func isTaken(err error) bool {
	var failed *sqlite.Error
	return errors.As(err, &failed) && strings.Contains(failed.Error(), "millrace_events.") &&
		slices.Contains([]int{sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID,
			sqlite3.SQLITE_CONSTRAINT_UNIQUE}, failed.Code())
}

// wrap adds to err the operation and the stream.
func (t *Tenant) wrap(doing, what string, err error) error {
	return fmt.Errorf("%s %s: %w", doing, excerpt.Quoted(what), t.store.damaged(err))
}

// closed returns the error of appends to a tenant in that state, nil if it takes appends.
func (t namedTenant) closed(state tenancy.State) error {
	switch state {
	case tenancy.Archived:
		return fmt.Errorf("tenant %q: %w", t.name, tenancy.ErrArchived)
	case tenancy.Dropping:
		return fmt.Errorf("tenant %q: %w", t.name, tenancy.ErrDropping)
	}
	return nil
}

func (t namedTenant) unknown() error { return fmt.Errorf("%w %q", tenancy.ErrUnknown, t.name) }
