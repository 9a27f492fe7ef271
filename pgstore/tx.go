package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

func (s port) Classify(err error) *faults.Fault { return classify(err) }

func (s port) Tx(ctx context.Context, fn func(store.Tx) error) error {
	return s.run(ctx, nil, fn)
}

// Fenced checks the lease at the beginning without a lock: other nodes can claim it from a node that is frozen
// meanwhile. The last message locks the lease, before what else is in it, and checks it again.
func (s port) Fenced(ctx context.Context, lease engine.Lease, fn func(store.Tx) error) error {
	return s.run(ctx, &lease, fn)
}

// maxDeadlocks is how often a transaction begins that the server ends because of deadlocks. A frozen owner that
// continues, and a command that runs without it, lock the lease and the command in different orders.
const maxDeadlocks = 3

// run runs fn in a transaction, under the fence of a lease if there is one. The messages are: the beginning, one for
// each One and Each with all that was queued before, and the commit with the rest.
func (s port) run(ctx context.Context, lease *engine.Lease, fn func(store.Tx) error) error {
	if err := s.notWithin(ctx); err != nil {
		return err
	}
	begin := s.beginDurable().BeginQuery
	if lease != nil {
		begin += "select " + s.control.checkLease(*lease)
	}
	var t *transaction
	once := func(conn *pgx.Conn) (err error) {
		t = s.on(ctx, conn)
		t.lease = lease
		defer func() {
			if status := conn.PgConn().TxStatus(); status != 'I' && !conn.IsClosed() {
				ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
				defer cancel()
				_, _ = conn.Exec(ending, "rollback") // otherwise the pool closes the connection
			}
		}()
		if _, err := conn.PgConn().Exec(ctx, begin).ReadAll(); err != nil {
			return err
		}
		if err := fn(t); err != nil {
			return err
		}
		return t.commit()
	}
	err := s.repeatably(ctx, once)
	// so that the other transaction takes its rows first
	pauses := backoff.New(20*time.Millisecond, 100*time.Millisecond)
	for try := 1; try < maxDeadlocks && pgerr.Is(err, pgerr.Deadlock) && pauses.Wait(ctx) == nil; try++ {
		err = s.repeatably(ctx, once)
	}
	if err != nil {
		return err
	}
	t.endTaken()
	return nil
}

// Lend announces the transaction as a batch of each of its rows, so that EndBatches finds the session.
func (s port) Lend(ctx context.Context, l store.Lending) error {
	runs := false
	b := newTx(s.store, l.ID, l.What, batchOptions{timeout: l.Timeout, durable: true, hook: true})
	b.fence = fence{
		rows: l.Rows, begin: "true", end: fmt.Sprintf("%s.check_transaction('%s')", s.control.quoted, b.name),
	}
	b.beforeHandler = func(ctx context.Context, conn *pgx.Conn) error {
		return s.onPlainly(ctx, conn).run(func(tx store.Tx) (err error) {
			runs, err = l.Before(tx)
			return err
		})
	}
	if l.After != nil {
		b.afterHandler = func(ctx context.Context, conn *pgx.Conn) error { return s.on(ctx, conn).run(l.After) }
	}
	err := b.run(handler.WithProjection(ctx, l.ID), func(ctx context.Context, tx pgx.Tx) error {
		if !runs {
			return nil
		}
		return l.Hook.Call(ctx, tx)
	})
	return s.notAllowed(err)
}

func (s port) View(ctx context.Context, fn func(store.View) error) error {
	return s.repeatably(ctx, func(conn *pgx.Conn) error { return fn(s.on(ctx, conn)) })
}

// ViewIn reads the incarnation in the message of the first statement, in its session.
func (s port) ViewIn(ctx context.Context, lease engine.Lease, fn func(store.View) error) error {
	var in engine.Incarnation
	err := s.repeatably(ctx, func(conn *pgx.Conn) error {
		t := s.on(ctx, conn)
		t.Later("incarnation", nil, &in)
		if err := fn(t); err != nil {
			return err
		}
		return t.flush()
	})
	if pgerr.Is(err, pgerr.NoIncarnation) || err == nil && in != lease.Incarnation {
		return event.ErrIncarnationChanged
	}
	return err
}

// transaction implements store.Tx on a connection, or on a transaction of a user: what is queued goes out with the next
// statement whose rows are needed.
type transaction struct {
	ctx    context.Context
	db     *database
	plain  bool // as onPlainly says
	q      querier
	queued []statement
	// lease is what the last message locks and checks, nil for nothing.
	lease *engine.Lease
	// checked reports whether something queued may fail after the server ran it, so that the commit must wait.
	checked bool
	reading bool
	err     error
	taken   []int32
	began   time.Time
}

type statement struct {
	sql  string
	args []any
	read func(rows pgx.Rows) error
	// ofTenant reports whether it is on the schema of a tenant.
	ofTenant bool
}

// on returns a transaction of package control on a connection or transaction. The caller calls flush in the end.
func (db *database) on(ctx context.Context, q querier) *transaction {
	return &transaction{ctx: ctx, db: db, q: q}
}

// onPlainly is on where nothing repeats a statement that the session has lost, such as in a transaction of the user. So
// none is prepared.
func (db *database) onPlainly(ctx context.Context, q querier) *transaction {
	t := db.on(ctx, q)
	t.plain = true
	return t
}

// run runs fn in a transaction that the caller commits.
func (t *transaction) run(fn func(store.Tx) error) error {
	if err := fn(t); err != nil {
		return err
	}
	return t.flush()
}

var errReading = errors.New("the transaction is used while rows of a statement are read")

// add queues a statement. One on the schema of a tenant is not prepared: the cache of prepared statements is too small
// for those of many tenants.
func (t *transaction) add(name string, args []any, read func(rows pgx.Rows) error) {
	if t.reading && t.err == nil {
		t.err = errReading
	}
	s := statement{args: args, read: read, ofTenant: t.db.control.onTenant(name)}
	if plannedAnew[name] {
		t.queued = append(t.queued, statement{sql: queries.Text(forArguments), read: skipRows})
	}
	if s.ofTenant {
		tenant, err := t.db.named(args[0].(string))
		if err != nil {
			t.err = errors.Join(t.err, err)
			return
		}
		s.sql = tenant.sql(name)
	} else {
		s.sql = t.db.control.sql(name)
	}
	t.queued = append(t.queued, s)
}

// plannedAnew are the statements whose best plan depends on their arguments: see forArguments. They are read without a
// transaction, so the setting ends with their message.
var plannedAnew = map[string]bool{"projections": true, "overview": true, "lags": true}

func skipRows(rows pgx.Rows) error {
	rows.Close()
	return rows.Err()
}

func (t *transaction) Exec(statement string, args ...any) { t.Later(statement, args) }

func (t *transaction) Later(statement string, args []any, results ...any) {
	t.add(statement, args, func(rows pgx.Rows) error {
		_, err := oneRow(rows, results)
		return err
	})
}

func (t *transaction) Must(otherwise error, statement string, args ...any) {
	t.checked = true
	t.add(statement, args, func(rows pgx.Rows) error {
		changed, err := oneRow(rows, nil)
		if err == nil && !changed {
			err = otherwise
		}
		return err
	})
}

func (t *transaction) One(statement string, args []any, results ...any) (found bool, err error) {
	t.add(statement, args, func(rows pgx.Rows) (err error) {
		found, err = oneRow(rows, results)
		return err
	})
	err = t.flush()
	return found && err == nil, err
}

func (t *transaction) Each(statement string, args, results []any, fn func() error) error {
	t.add(statement, args, func(rows pgx.Rows) error {
		t.reading = true
		defer func() { t.reading = false }()
		_, err := pgx.ForEachRow(rows, scanned(results), fn)
		return err
	})
	return t.flush()
}

func (t *transaction) Lock(tenants ...string) { t.Exec("lock_tenants", tenants) }

func (t *transaction) Notify(n engine.Notice) {
	t.Exec("notify", t.db.control.controlChannel, payload(n))
}

func (t *transaction) EndBatches(rows ...int32) {
	t.taken = append(t.taken, rows...)
	if t.began.IsZero() {
		t.Later("transaction_began", nil, &t.began)
	}
}

// endTaken does after the commit what EndBatches says. Only the role of a hook may end its session.
func (t *transaction) endTaken() {
	if len(t.taken) == 0 {
		return
	}
	t.db.endZombieBatches(t.ctx, t.db.pool, wide(t.taken), t.began)
	if t.db.hooks != nil {
		t.db.endZombieBatches(t.ctx, t.db.hooks, wide(t.taken), t.began)
	}
}

// endZombieBatches ends the sessions in which batches of previous owners of these rows, begun before that time, still
// run.
func (db *database) endZombieBatches(ctx context.Context, pool *pgxpool.Pool, rows []int64, before time.Time) {
	if _, err := pool.Exec(ctx, db.control.sql("end_zombie_batches"), int64(uint32(db.control.batchClass)), rows,
		before); err != nil {
		db.log.Debug("ending the batches of dead owners failed", zap.Error(err))
	}
}

func wide(rows []int32) []int64 {
	wide := make([]int64, len(rows))
	for i, row := range rows {
		wide[i] = int64(row)
	}
	return wide
}

// payload returns the text of a notice about leases, as session.Next reads it.
func payload(n engine.Notice) string {
	row := strconv.Itoa(int(n.Row))
	switch {
	case n.Tenant != "":
		return "tenant " + n.Tenant
	case n.Nodes:
		return "nodes"
	case n.Operations:
		return "operations"
	case n.Commanded:
		return "command " + row
	case n.Row != 0:
		return row
	}
	return "free"
}

// flush sends what is queued in one message and reads the results.
func (t *transaction) flush() error {
	queued := t.queued
	t.queued, t.checked = nil, false
	if t.err != nil || len(queued) == 0 {
		return t.err
	}
	ofTenant := slices.ContainsFunc(queued, func(s statement) bool { return s.ofTenant })
	var err error
	switch {
	case t.plain || ofTenant:
		err = t.sendUnprepared(queued)
	case len(queued) == 1:
		err = readRows(queued[0].read)(t.q.Query(t.ctx, queued[0].sql, queued[0].args...))
	default:
		err = t.send(queued)
	}
	if !ofTenant {
		err = t.db.missing(err)
	}
	if t.err == nil { // otherwise the transaction was used while rows were read
		t.err = err
	}
	return t.err
}

func (t *transaction) send(queued []statement) (err error) {
	var batch pgx.Batch
	for _, s := range queued {
		batch.Queue(s.sql, s.args...)
	}
	results := t.q.SendBatch(t.ctx, &batch)
	defer func() {
		if closed := results.Close(); err == nil {
			err = closed
		}
	}()
	for _, s := range queued {
		if err := readRows(s.read)(results.Query()); err != nil {
			return err
		}
	}
	return nil
}

// sendUnprepared sends each statement in a message of its own: batches of the driver prepare their statements.
func (t *transaction) sendUnprepared(queued []statement) error {
	for _, s := range queued {
		if err := readRows(s.read)(t.q.Query(t.ctx, s.sql,
			append([]any{pgx.QueryExecModeExec}, s.args...)...)); err != nil {
			return err
		}
	}
	return nil
}

func readRows(read func(pgx.Rows) error) func(pgx.Rows, error) error {
	return func(rows pgx.Rows, err error) error {
		if err != nil {
			return err
		}
		return read(rows)
	}
}

// commit commits, in one message with what is queued. If a result must be checked first, the commit is a message of its
// own.
func (t *transaction) commit() error {
	if l := t.lease; l != nil {
		last := t.queued
		t.queued = nil
		t.Exec("lock_lease", l.Row)
		t.Exec("check_lease", l.Row, l.Owner, l.Epoch, int64(l.Incarnation))
		t.queued = append(t.queued, last...)
	}
	if t.checked {
		if err := t.flush(); err != nil {
			return err
		}
	}
	var tag pgconn.CommandTag
	t.queued = append(t.queued, statement{sql: "commit", read: func(rows pgx.Rows) error {
		rows.Close()
		tag = rows.CommandTag()
		return rows.Err()
	}})
	if err := t.flush(); err != nil {
		return err
	}
	if tag.String() != "COMMIT" {
		return pgx.ErrTxCommitRollback
	}
	return nil
}

// oneRow scans the row of a statement, if it returned one, and reports whether it returned or changed one.
func oneRow(rows pgx.Rows, results []any) (bool, error) {
	tag, err := pgx.ForEachRow(rows, fill(rows, scanned(results)), func() error { return nil })
	return err == nil && tag.RowsAffected() > 0, err
}

// fill ignores the columns of a statement whose results the caller does not want.
func fill(rows pgx.Rows, results []any) []any {
	for len(results) < len(rows.FieldDescriptions()) {
		results = append(results, nil)
	}
	return results
}

// scanned returns results that scan null as the zero time, and microseconds as durations: the text of an interval
// depends on the session's IntervalStyle.
func scanned(results []any) []any {
	scanned := make([]any, len(results))
	for i, r := range results {
		switch at := r.(type) {
		case *time.Time:
			r = orZero{at}
		case *time.Duration:
			r = micros{at}
		}
		scanned[i] = r
	}
	return scanned
}

// micros scans a number of microseconds.
type micros struct{ *time.Duration }

// ScanInt64 implements pgtype.Int64Scanner.
func (m micros) ScanInt64(v pgtype.Int8) error {
	*m.Duration = time.Duration(v.Int64) * time.Microsecond
	return nil
}
