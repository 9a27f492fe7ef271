package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/pgstore/internal/guard"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/session"
	"github.com/millrace-go/millrace/projection"
)

func (s port) Apply(h handler.Handler, o engine.ApplyOptions) engine.ApplyFunc {
	return func(ctx context.Context, lease engine.Lease, batch engine.Batch) error {
		b, isOpening := batch.Opening.(*batchTx)
		switch {
		case h.Queue != nil:
			b = queuesUnder(s.store, lease, batch.To,
				batchOptions{timeout: o.Timeout, asyncCommit: o.AsyncCommit, fresh: batch.Fresh})
		case !isOpening:
			b = beginsUnder(s.store, lease, batchOptions{timeout: o.Timeout,
				asyncCommit: o.AsyncCommit, fresh: batch.Fresh})
		}
		if h.Queue == nil {
			b.advances(lease, batch.To)
		}
		b.slot, b.apart, b.connect, b.hasSlot = batch.Slot, batch.Apart, batch.Connect, batch.Connected
		if len(batch.BlockedByStream) > 0 || batch.Replay != nil {
			b.afterHandler = s.settler(lease, batch)
		}
		ctx = handler.WithProjection(ctx, lease.ID)
		if h.Queue != nil {
			return b.runQueued(ctx, lease, h, batch.Events)
		}
		return b.run(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if len(batch.Events) == 0 {
				return nil
			}
			return h.Apply(ctx, tx, batch.Events)
		})
	}
}

func (s port) Abandoned() int64 { return s.store.handling.abandoned.Load() }

// settler returns the function that settles the dead letters of a batch. In a function of its own, lease is copied only
// if there are any.
func (s port) settler(lease engine.Lease, batch engine.Batch) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		return s.on(ctx, conn).run(func(tx store.Tx) error { control.Settle(tx, lease, batch); return nil })
	}
}

type batchOptions struct {
	timeout     time.Duration
	asyncCommit bool
	// durable commits synchronously, whatever the session's default is.
	durable bool
	// hook connects by Options.HookDSN.
	hook bool
	// fresh asks for a connection that no batch has used before.
	fresh bool
}

// batchTx is one fenced transaction of a projection: a batch, or the hook of an operation. It begins with the
// time-outs, the announcement and a check of the fence. Then it runs the handler. It ends with the second half of the
// fence, which raises unless the lease is still held, and the commit. The message that commits may also begin the batch
// that gets the slot next.
type batchTx struct {
	store *Store
	id    projection.ID
	// what describes the transaction in errors.
	what string
	// to is the checkpoint after a batch.
	to    int64
	fence fence
	opts  batchOptions
	name  string
	// apart are the rows of leases of other projections. The transaction waits for their batches, and theirs wait for
	// it.
	apart []int32
	// slot is the slot of a batch. It is nil if the slot cannot be promised to another batch.
	slot engine.Slot
	// connect is Connect of the engine.Batch, and hasSlot its Connected.
	connect func(ctx context.Context, tenants []string) (release func(), err error)
	hasSlot bool
	// begun is the open transaction.
	begun
	back back
	// beforeHandler and afterHandler are called in the transaction before the handler and after it returned, unless
	// they are nil.
	beforeHandler, afterHandler func(ctx context.Context, conn *pgx.Conn) error
}

var batchCounter atomic.Int64

// fence has the two halves of a fence: expressions of SQL that raise if the transaction must not commit. rows are the
// leases by which the transaction announces itself. They contain only numbers, UUIDs and quoted text, because several
// statements in one round trip take no parameters.
type fence struct {
	rows       []int32
	begin, end string
}

func newTx(s *Store, id projection.ID, what string, opts batchOptions) *batchTx {
	return &batchTx{store: s, id: id, what: what, opts: opts, name: strconv.FormatInt(batchCounter.Add(1), 10)}
}

// newBatchTx returns the transaction of a batch that advances the checkpoint of a lease.
func newBatchTx(s *Store, lease engine.Lease, to int64, opts batchOptions) *batchTx {
	b := beginsUnder(s, lease, opts)
	b.advances(lease, to)
	return b
}

// beginsUnder returns the transaction of a batch. What it advances to is set later.
func beginsUnder(s *Store, lease engine.Lease, opts batchOptions) *batchTx {
	b := newTx(s, lease.ID, "a batch", opts)
	b.fence = fence{rows: []int32{lease.Row}, begin: s.control.checkLease(lease)}
	return b
}

// queuesUnder returns the transaction of a batch whose handler queues. In a message, the fence is a statement: see
// appendTo.
func queuesUnder(s *Store, lease engine.Lease, to int64, opts batchOptions) *batchTx {
	b := newTx(s, lease.ID, "a batch", opts)
	b.to, b.fence = to, fence{rows: []int32{lease.Row}}
	return b
}

// advances sets the checkpoint after the batch. The fence ends with the advance.
func (b *batchTx) advances(lease engine.Lease, to int64) {
	b.to = to
	b.fence.end = fmt.Sprintf("%s.advance('%s', %d, '%s', %d, %d, %d, %d)", b.store.control.quoted, b.name, lease.Row,
		lease.Owner,
		lease.Epoch, lease.Incarnation, lease.Checkpoint, to)
}

// finishTime bounds each step after the handler: the advance and the commit, or the rollback, and a message that
// batches share.
const finishTime = 10 * time.Second

func (b *batchTx) run(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.release()
	leased, conn, restore := b.leased, b.leased.conn, b.restore
	guarded := guard.New(b.tx)
	marked, ended := b.store.mark(ctx)
	defer ended()
	err := b.store.handling.during(b, func() error { return b.call(marked, leased, restore.PID, guarded, fn) })
	err = b.sentBack(guarded.Fault(), err)
	if err != nil {
		switch {
		case leased.abandoned:
		// for the latter, the statement cache may be the cause
		case b.back.onItsWay, classify(err).Class == faults.Interrupted:
			closeHard(ctx, conn)
		default:
			b.rollback(ctx, conn, restore)
			err = b.conflict(ctx, conn, guarded.Fault(), b.store.extensions.wrap(ctx, conn, b.id.Tenant, err))
		}
		return fmt.Errorf("handle %s of %s: %w", b.what, b.id, err)
	}
	if guarded.Nested() {
		// The driver would number the savepoints of the next batch on from here. Each name is an entry in
		// pg_stat_statements.
		b.slot = nil
	}
	if err := b.finish(ctx, conn); err != nil {
		b.rollback(ctx, conn, restore)
		err = b.conflict(ctx, conn, err, err)
		if b.to > 0 {
			return fmt.Errorf("commit %s of %s up to %d: %w", b.what, b.id, b.to, err)
		}
		return fmt.Errorf("commit %s of %s: %w", b.what, b.id, err)
	}
	for _, tenant := range guarded.Dirtied() {
		b.store.notify.wake(tenant)
	}
	return nil
}

// acquire returns a connection of the pool. If options ask for a fresh one and batches have used that connection, it
// dials another, so that the pool keeps its idle ones. On a full server that takes the place of the used one. If no
// connection can be opened, the batch gets a used one.
func (b *batchTx) acquire(ctx context.Context) (*leasedConn, error) {
	pool := b.lender().pool
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if !b.opts.fresh || !session.Used(pooled.Conn()) {
		return leasedOf(pooled), nil
	}
	conn, err := b.store.dialFresh(ctx, func() { closeHard(ctx, pooled.Conn()) })
	if err == nil {
		pooled.Release()
		return &leasedConn{conn: conn, since: time.Now()}, nil
	}
	b.store.log.Debug("no new connection for a batch", zap.Stringer("projection", b.id), zap.Error(err))
	if !pooled.Conn().IsClosed() {
		return leasedOf(pooled), nil
	}
	pooled.Release()
	pooled, err = pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return leasedOf(pooled), nil
}

func leasedOf(pooled *pgxpool.Conn) *leasedConn {
	return &leasedConn{conn: pooled.Conn(), pooled: pooled, since: time.Now()}
}

// afterDeadline is how much later than the handler's deadline the server's time-outs end: the server is asked what it
// waits for first, and the handler may still return.
const afterDeadline = askTime + usercode.Grace + time.Second

// lockWait is how long the statements of the handler wait for a lock.
func (b *batchTx) lockWait() time.Duration { return b.opts.timeout / 2 }

// commitWait is how long the commit waits for a lock, for instance of a deferred constraint. The wait ends with a lock
// time-out, before finishTime ends the commit.
func (b *batchTx) commitWait() time.Duration { return min(b.lockWait(), finishTime/2) }

// beginWait is how long the begin waits for each of the locks of announce, so that it waits for half of the timeout in
// all.
func (b *batchTx) beginWait() time.Duration {
	return b.lockWait() / time.Duration(1+len(b.apart))
}

// setUpSQL and finishSQL are not in files because several statements in one round trip take no parameters. Indexes and
// locks: those of the functions of the fence. first is selected before the announcement and the check of the fence.
// wait is for each of their locks.
func (b *batchTx) setUpSQL(wait time.Duration, first string) string {
	most := milliseconds(b.opts.timeout + afterDeadline)
	var sql strings.Builder
	sql.WriteString(b.store.server.unbounded)
	sql.Grow(setUpBytes)
	fmt.Fprintf(&sql, "set local lock_timeout = %d; set local statement_timeout = %d; "+
		"set local idle_in_transaction_session_timeout = %d; set local millrace.batch = '%s'; ", milliseconds(wait),
		most, most, b.name)
	if b.store.server.watchesClients {
		sql.WriteString("set local client_connection_check_interval = 1000; ")
	}
	if b.opts.asyncCommit {
		sql.WriteString("set local synchronous_commit = off; ")
	} else if b.opts.durable {
		sql.WriteString("set local synchronous_commit = on; ")
	}
	sql.WriteString(b.store.opts.tenantPathSQL(b.id.Tenant))
	sql.WriteString("select " + first)
	b.announce(&sql)
	sql.WriteString(b.fence.begin)
	if wait != b.lockWait() {
		fmt.Fprintf(&sql, "; set local lock_timeout = %d", milliseconds(b.lockWait()))
	}
	return sql.String()
}

// announce writes the functions that announce the transaction. Locks on the announcements of others keep the
// transaction apart from them. All are taken in the order of their rows, before any other lock, so that transactions
// that begin never deadlock.
func (b *batchTx) announce(sql *strings.Builder) {
	rows := b.fence.rows
	if len(b.apart) > 0 {
		rows = slices.Sorted(slices.Values(slices.Concat(rows, b.apart)))
	}
	for _, row := range rows {
		mode := "_shared"
		if slices.Contains(b.apart, row) {
			mode = ""
		}
		fmt.Fprintf(sql, "pg_advisory_xact_lock%s(%d, %d), ", mode, b.store.control.batchClass, row)
	}
}

// setUpBytes is about the length of setUpSQL.
const setUpBytes = 640

// milliseconds returns d for a setting of the server: at least 1, since 0 means no limit, and at most what a setting
// holds.
func milliseconds(d time.Duration) int64 { return min(max(1, d.Milliseconds()), math.MaxInt32) }

// finishSQL returns the statements that end the batch, and begin the next one if it is not nil. The session is restored
// in a transaction between the two, since LISTEN outlives the statements until a commit.
func (b *batchTx) finishSQL(next *batchTx) string {
	end := fmt.Sprintf("set local lock_timeout = %d; %s; select %s; commit",
		milliseconds(b.commitWait()),
		b.restore.User, b.fence.end)
	if next == nil {
		return end + "; " + b.restore.Session
	}
	return end + " and chain; " + b.restore.State + "; commit; " + next.beginSQL()
}

// finish advances and commits in one round trip, and restores the session. After an error of the connection, only the
// lease's row shows whether the commit happened.
func (b *batchTx) finish(ctx context.Context, conn *pgx.Conn) error {
	switch status := conn.PgConn().TxStatus(); {
	case conn.PgConn().IsBusy():
		return &faults.Fault{
			Class: faults.Handler, Err: errors.New("the handler left the rows or the results of a query open"),
		}
	case status == 'T':
	case status == 'E':
		return &faults.Fault{
			Class: faults.Handler,
			Err:   errors.New("the handler returned no error, but a statement of its transaction failed"),
		}
	default:
		closeHard(ctx, conn)
		return &faults.Fault{Class: faults.Handler, Err: ErrBatchEnded}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	if b.afterHandler != nil {
		// The handler may have changed the user or role.
		if err := conn.PgConn().Exec(ctx, b.restore.User).Close(); err != nil {
			return storeFault(err)
		}
		if err := b.afterHandler(ctx, conn); err != nil {
			return storeFault(err)
		}
	}
	next := b.next()
	ends, err := transactionEnds(conn.PgConn().Exec(ctx, b.finishSQL(next)))
	if len(ends) > 0 && ends[0] == committed {
		b.ended(ctx, conn, next, len(ends) > 1, err)
		return nil
	}
	err = cmp.Or(err, pgx.ErrTxCommitRollback)
	fault := classify(err)
	if pgerr.Is(err, pgerr.TransactionEnded) {
		closeHard(ctx, conn)
		fault = &faults.Fault{Class: faults.Handler, Err: errors.Join(ErrBatchEnded, err)}
	}
	return fault
}

// ended deals with the connection after the commit: with an error of what was sent along, and with the transaction of
// the next batch, if there is one.
func (b *batchTx) ended(ctx context.Context, conn *pgx.Conn, next *batchTx, restored bool, err error) {
	switch {
	case err != nil && restored:
		b.rollback(ctx, conn, b.restore) // the next batch begins itself, and meets the error, if it lasts
	case err != nil:
		b.store.log.Warn("resetting the session after a commit failed, closing its connection",
			zap.Stringer("projection", b.id), zap.Error(err))
		closeHard(ctx, conn)
	case next != nil:
		b.pass(next)
	}
}

// committed is the tag of a commit that was not turned into a rollback.
const committed = "COMMIT"

// transactionEnds returns the tags of the statements that ended a transaction.
func transactionEnds(results *pgconn.MultiResultReader) (ends []string, err error) {
	for results.NextResult() {
		if tag, err := results.ResultReader().Close(); err == nil &&
			(tag.String() == committed || tag.String() == "ROLLBACK") {
			ends = append(ends, tag.String())
		}
	}
	return ends, results.Close()
}

// rollback ends the transaction, if it is open, and restores the session, because its locks and settings survive a
// rollback. If that fails, it closes the connection. Without an open transaction, a pooler that lends sessions would
// restore another session.
func (b *batchTx) rollback(ctx context.Context, conn *pgx.Conn, restore session.Restore) {
	if conn.IsClosed() || b.lender().lent && conn.PgConn().TxStatus() == 'I' {
		return
	}
	sql := restore.Session
	if conn.PgConn().TxStatus() != 'I' {
		sql = "rollback; " + sql
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	if err := conn.PgConn().Exec(ctx, sql).Close(); err != nil {
		closeHard(ctx, conn)
	}
}

// closeHard closes a connection without waiting for the server, so that the pool does not lend it again.
func closeHard(ctx context.Context, conn *pgx.Conn) {
	_ = conn.PgConn().Conn().Close()
	_ = conn.Close(ctx)
}

// leasedConn is the connection of a batch. pooled is nil if the batch dialed it. If the handler does not return, the
// connection is closed, and never returns to the pool.
type leasedConn struct {
	conn      *pgx.Conn
	pooled    *pgxpool.Conn
	since     time.Time
	abandoned bool
}

// abandon removes the connection from the pool and closes it, so that the handler cannot commit on it.
func (l *leasedConn) abandon() {
	l.abandoned = true
	if l.pooled != nil {
		l.pooled.Hijack()
	}
	_ = l.conn.PgConn().Conn().Close()
}

func (l *leasedConn) release() {
	switch {
	case l.abandoned:
	case l.pooled != nil:
		l.pooled.Release()
	default:
		closeHard(context.Background(), l.conn)
	}
}

// begin begins the transaction, unless another batch has begun it.
func (b *batchTx) begin(ctx context.Context) error {
	if b.tx != nil && ctx.Err() != nil {
		b.Drop()
	}
	if b.tx != nil {
		return nil
	}
	leased, err := b.acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire a connection for %s: %w", b.id, storeFault(err))
	}
	tx, restore, err := b.beginOn(ctx, leased.conn)
	if err != nil {
		leased.release()
		return fmt.Errorf("begin %s of %s: %w", b.what, b.id, blocked(storeFault(err)))
	}
	b.begun = begun{leased: leased, tx: tx, restore: restore}
	return nil
}

// beginOn begins the transaction of a batch on a connection. It returns the statements that restore the session
// afterwards.
func (b *batchTx) beginOn(ctx context.Context, conn *pgx.Conn) (pgx.Tx, session.Restore, error) {
	tx, restore, err := b.tryBegin(ctx, conn)
	if err != nil {
		b.rollback(ctx, conn, restore)
		closeStandby(ctx, conn, err)
		return nil, restore, err
	}
	return tx, restore, nil
}

// tryBegin is beginOn, and leaves the connection as it is after an error. Behind a pooler that gives each transaction
// another session, it reads the session's settings each time, which costs one round trip more.
func (b *batchTx) tryBegin(ctx context.Context, conn *pgx.Conn) (tx pgx.Tx, restore session.Restore, err error) {
	begin, setUp := queries.Text("begin_batch"), b.setUpSQL(b.beginWait(), "")
	if b.lender().lent {
		restore, err = b.store.sessions.Begin(ctx, conn, begin)
	} else {
		restore, err = session.Of(ctx, conn)
		setUp = begin + "; " + setUp
	}
	if err != nil {
		return nil, restore, err
	}
	tx, err = conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: setUp})
	if err != nil || b.beforeHandler == nil {
		return tx, restore, err
	}
	return tx, restore, b.beforeHandler(ctx, conn)
}
