package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
	"github.com/millrace-go/millrace/tenancy"
)

// preparedTenants is the number of tenants whose appends are prepared statements, the first ones that a store appends
// to. Parsing and planning takes most of an append (measured: 240 µs against 50 µs without waiting for the disk). A
// larger number costs memory: some 100 KiB per statement and session of the server, with up to twelve statements per
// tenant, twelve that return the events, and two that load an aggregate. A cache that is too small for its tenants is
// worse than none.
const preparedTenants = 8

// expireEvery is how many keyed appends there are, on average, between two appends that delete old keys. Such an append
// deletes up to 64 keys. So keys are deleted four times as fast as they are made, and all other appends cost nothing
// more.
const expireEvery = 16

// Append appends events to a stream, all or none, and wakes the projections that wait for them. It takes one round
// trip, and a second one after a version conflict or for a repeat.
//
// It returns an *event.VersionConflictError if the stream is not in the expected state, event.ErrKeyReused if the
// idempotency key was used for another stream, and tenancy.ErrArchived or ErrDropping if the tenant takes
// no appends. Events that cannot be stored are refused before anything is written.
// After an error of the connection, the events may have been appended or not. The call can be repeated safely if it has
// an idempotency key or expects a version.
func (t *Tenant) Append(ctx context.Context, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error) {
	asked := event.Appending{Tenant: t.name, Stream: stream, Expected: expected, Events: events}
	return t.store.middleware.Around(ctx, asked, t.appendToPool)
}

// appendToPool is Append within its middleware.
func (t *Tenant) appendToPool(ctx context.Context, asked event.Appending) (event.Appended, error) {
	a, err := t.newAppend(asked)
	if err != nil {
		return event.Appended{}, t.wrap(ctx, "append to", asked.Stream, err)
	}
	if err := t.store.notWithin(ctx); err != nil {
		return event.Appended{}, t.wrap(ctx, "append to", asked.Stream, err)
	}
	if t.store.notify.local.Rests(t.name) && a.Times == nil && a.isSmall() {
		a.own = &engine.Page{Asked: time.Now()}
	}
	result, err := t.append(ctx, t.store.pool, a, func() (event.Appended, error) { return t.appendOnConn(ctx, a) })
	if err != nil {
		return event.Appended{}, t.wrap(ctx, "append to", asked.Stream, err)
	}
	t.store.prepared.add(t.name)
	if !result.Repeated {
		t.store.notify.appended(t.name, result.Last(), a.handedOver(result))
	}
	return result, nil
}

// append calls once. If nothing was appended, it returns the reason.
func (t *Tenant) append(ctx context.Context, q querier, a appendCall,
	once func() (event.Appended, error)) (event.Appended, error) {
	const tries = 10
	for range tries {
		result, err := once()
		if err == nil && result.Positions == nil {
			result, err = t.report(ctx, q, a)
		}
		if !errors.Is(err, errKeyExpired) {
			return result, err
		}
	}
	return event.Appended{}, errKeyExpired
}

// errKeyExpired is returned when an idempotency key was found, but was deleted before its result could be read.
var errKeyExpired = errors.New("the idempotency key expired meanwhile")

// AppendTx is Append in a transaction of the caller. The events become visible when it commits. Call Wake after the
// commit, so that projections receive the events at once. InTx, and the batch of a handler, do so themselves. The
// stream and the key stay locked until the transaction ends, so it should end soon.
//
// A version conflict leaves the transaction usable. With an idempotency key the append runs in a savepoint of its own,
// which costs two round trips more. If synchronous_commit is off, AppendTx turns it on for this transaction, because
// others act on the events.
func (t *Tenant) AppendTx(ctx context.Context, tx pgx.Tx, stream string, expected event.Expected,
	events ...event.Event) (event.Appended, error) {
	asked := event.Appending{Tenant: t.name, Stream: stream, Expected: expected, Events: events}
	return t.store.middleware.AroundTx(ctx, t.db, asked,
		func(ctx context.Context, asked event.Appending) (event.Appended, error) {
			return t.appendToTx(ctx, tx, asked)
		})
}

// Wake wakes the projections of the tenant, in this process and in others. Call it after the commit of a transaction of
// your own in which AppendTx has appended. It never blocks, and a call for nothing costs one read. Append, InTx and
// batches of handlers wake by themselves.
func (t *Tenant) Wake() { t.store.notify.wake(t.name) }

// appendToTx is AppendTx within its middleware.
func (t *Tenant) appendToTx(ctx context.Context, tx pgx.Tx, asked event.Appending) (event.Appended, error) {
	a, err := t.newAppend(asked)
	if err != nil {
		return event.Appended{}, t.wrapTx("append to", asked.Stream, err)
	}
	a.durable = true
	result, err := t.append(ctx, tx, a, func() (event.Appended, error) { return t.appendInTx(ctx, tx, a) })
	if err != nil {
		return event.Appended{}, t.wrapTx("append to", asked.Stream, err)
	}
	t.store.prepared.add(t.name)
	if guarded, ok := tx.(interface{ Dirty(tenant string) }); ok && !result.Repeated {
		guarded.Dirty(t.name)
	}
	return result, nil
}

// appendCall is a valid append.
type appendCall struct {
	eventlog.Append
	durable bool // synchronous_commit is turned on for the transaction of the caller
	expire  bool // old idempotency keys are deleted as well
	// own gets the events as they are stored. It is nil if no feed of this process would take them.
	own *engine.Page
}

// newAppend checks the arguments of an append. Its errors name the event.
func (t *Tenant) newAppend(asked event.Appending) (appendCall, error) {
	a, err := eventlog.NewAppend(t.store.opts.Types.Engine(), asked.Stream, asked.Expected, asked.Events)
	return appendCall{Append: a, expire: t.store.opts.KeyRetention > 0 && rand.IntN(expireEvery) == 0}, err
}

// appendOnConn is appendOnce on a connection of the pool, by a prepared statement if its session may have one. Only
// such a statement returns the events.
func (t *Tenant) appendOnConn(ctx context.Context, a appendCall) (result event.Appended, err error) {
	err = t.store.onConn(ctx, func(conn *pgx.Conn) (err error) {
		var sent bool
		result, sent, err = t.appendPrepared(ctx, conn, a)
		if a.own != nil && mayNotReturn(err) {
			a.own = nil
			result, sent, err = t.appendPrepared(ctx, conn, a)
		}
		if !sent {
			a.own = nil
			result, err = t.appendOnce(ctx, conn, a)
		}
		return err
	})
	return result, err
}

// appendPrepared sends the append by a prepared statement. It reports sent as false, and has written nothing, if the
// session has no such statement or the events have times, which is rare.
func (t *Tenant) appendPrepared(ctx context.Context, conn *pgx.Conn,
	a appendCall) (result event.Appended, sent bool, err error) {
	if a.expires() || a.Times != nil || !t.store.keepsPrepared(conn) {
		return result, false, nil
	}
	statement, args := a.statement()
	own := t.store.prepared.statement(t, statement)
	if own.name == "" {
		return result, false, nil
	}
	result, err = sendPrepared(ctx, conn, a, own, args)
	return result, !forgetPrepared(ctx, conn, err, own.name), err
}

// sendPrepared sends the append by a prepared statement, which it prepares if the session has not done so.
func sendPrepared(ctx context.Context, conn *pgx.Conn, a appendCall, own tenantStatement,
	args []any) (event.Appended, error) {
	if err := prepareAll(ctx, conn, own.name, own.sql); err != nil {
		return event.Appended{}, err
	}
	return sendAppend(ctx, conn, a, own.name, args)
}

// appendOnce sends the append by its text. It is prepared only for the first tenants, and not with times, since an
// append with them is not repeated if the session has lost it.
//
// After a conflict or a repeat the result is empty; report then returns which it was. Nothing was written then, and no
// position drawn.
func (t *Tenant) appendOnce(ctx context.Context, q querier, a appendCall) (event.Appended, error) {
	statement, args := a.statement()
	if t.store.server.pooling.Forgets || a.expires() || a.Times != nil || t.store.prepared.of(t.name) < 0 {
		args = slices.Insert(args, 0, any(pgx.QueryExecModeExec))
	}
	return sendAppend(ctx, q, a, t.sql(statement), args)
}

// sendAppend runs the statement of an append, by its text or its name.
func sendAppend(ctx context.Context, q querier, a appendCall, sql string, args []any) (event.Appended, error) {
	var result event.Appended
	var position, version int64
	var events ownReader
	columns := []any{&position, &version}
	if a.durable {
		columns = append(columns, nil)
	}
	if a.own != nil {
		args = slices.Insert(args, 0, any(pgx.QueryResultFormats(wire.Binary)))
		columns = append(columns, events.columns()...)
	}
	rows, _ := q.Query(ctx, sql, args...) // simple_protocol returns a conflict here, and the rows have it too
	positions := make([]int64, 0, 1)
	_, err := pgx.ForEachRow(rows, columns, func() error {
		positions = append(positions, position)
		result.Version = max(result.Version, version)
		if a.own != nil {
			events.add(rows.RawValues())
		}
		return nil
	})
	switch {
	case pgerr.Is(err, pgerr.KeyedConflict):
		return event.Appended{}, nil
	case err != nil:
		return event.Appended{}, err
	case len(positions) > 0:
		// They arrive in this order, but SQL does not guarantee it.
		slices.Sort(positions)
		result.Positions = positions
	}
	if a.own != nil {
		page := events.page()
		page.Asked = a.own.Asked
		*a.own = page
	}
	return result, nil
}

// appendInTx is appendOnce within a transaction that must survive a conflict.
func (t *Tenant) appendInTx(ctx context.Context, tx pgx.Tx, a appendCall) (event.Appended, error) {
	if !a.Keyed {
		return t.appendOnce(ctx, tx, a)
	}
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return event.Appended{}, err
	}
	result, err := t.appendOnce(ctx, savepoint, a)
	if err != nil || result.Positions == nil {
		return result, errors.Join(err, endSavepoint(ctx, savepoint.Rollback))
	}
	return result, endSavepoint(ctx, savepoint.Commit)
}

// expires reports whether the append deletes old keys as well. That is rare, so its statement is not prepared.
func (a appendCall) expires() bool { return a.Keyed && a.expire }

// statement returns the name of the statement, and its arguments.
func (a appendCall) statement() (statement string, args []any) {
	statement = "append_any"
	version, bound := a.Expected.Version()
	switch {
	case bound && version == 0:
		statement = "append_new"
	case bound:
		statement = "append_exact"
	}
	args = []any{a.Stream, a.Types, a.Bodies, a.Headers, a.Causations, a.Correlations}
	switch {
	case a.Times != nil:
		statement += " append_timed"
	case len(a.Types) == 1:
		statement += " append_one"
		args = []any{a.Stream, a.Types[0], a.Bodies[0], a.Headers[0], a.Causations[0], a.Correlations[0]}
	default:
		statement += " append_many"
	}
	switch {
	case a.expires():
		statement, args = statement+" expiring", append(args, a.Key)
	case a.Keyed:
		statement, args = statement+" keyed", append(args, a.Key)
	}
	if a.Times != nil {
		args = append(args, a.Times)
	}
	if a.own != nil {
		statement += " own"
	}
	if version > 0 {
		args = append(args, version)
	}
	if a.durable {
		statement += " durable"
	}
	return statement, args
}

// report returns why an append wrote nothing: the first result if it was a repeat, or the conflict.
func (t *Tenant) report(ctx context.Context, q querier, a appendCall) (event.Appended, error) {
	if a.Keyed {
		first, found, err := t.firstResult(ctx, q, a)
		if err != nil || found {
			return first, err
		}
	}
	rows, err := q.Query(ctx, t.sql("stream_version"), pgx.QueryExecModeExec, a.Stream)
	if err != nil {
		return event.Appended{}, err
	}
	var actual int64
	_, err = pgx.ForEachRow(rows, []any{&actual}, func() error { return nil })
	if err != nil {
		return event.Appended{}, err
	}
	version, bound := a.Expected.Version()
	if a.Keyed && (!bound || version == actual) {
		return event.Appended{}, errKeyExpired
	}
	return event.Appended{}, a.Conflict(actual)
}

// firstResult returns the result of the first append with the key.
func (t *Tenant) firstResult(ctx context.Context, q querier,
	a appendCall) (result event.Appended, found bool, err error) {
	stream, result, found, err := t.firstAppend(ctx, q, a.Key)
	if err != nil || !found {
		return event.Appended{}, false, err
	}
	if err := a.UsedFor(stream); err != nil {
		return event.Appended{}, false, err
	}
	return result, true, nil
}

// firstAppend returns the stream and the result of the first append with a key.
func (t *Tenant) firstAppend(ctx context.Context, q querier,
	key string) (stream string, result event.Appended, found bool, err error) {
	rows, err := q.Query(ctx, t.sql("first_append"), pgx.QueryExecModeExec, key)
	if err != nil {
		return "", result, false, err
	}
	_, err = pgx.ForEachRow(rows, []any{&stream, &result.Version, &result.Positions}, func() error {
		found, result.Repeated = true, true
		return nil
	})
	return stream, result, found && err == nil, err
}

// wrap adds to err the operation and the stream. A missing schema or table is the tenant's.
func (t *Tenant) wrap(ctx context.Context, doing, what string, err error) error {
	return fmt.Errorf("%s %s: %w", doing, excerpt.Quoted(what), t.absent(ctx, err))
}

// wrapTx is wrap within a transaction of the caller. It does not query the tenant, which might need a second
// connection.
func (t *Tenant) wrapTx(doing, what string, err error) error {
	if pgerr.IsMissing(err) {
		err = fmt.Errorf("%w %q, or its schema was dropped: %w", tenancy.ErrUnknown, t.name, err)
	}
	return fmt.Errorf("%s %s: %w", doing, excerpt.Quoted(what), t.closed(err))
}
