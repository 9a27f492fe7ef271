package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// readLockWait limits how long a read waits for a lock on a tenant's events: VACUUM FULL or ALTER TABLE must delay only
// that tenant.
const readLockWait = 100 * time.Millisecond

// eventReads implements the reading methods of engine.Events, and Begins of store.Control. What tails share is here:
// scans of locks and starts, each of which serves those that asked for it meanwhile, and the prepared reads.
type eventReads struct {
	*database
	tenantLocks tenantLocks
	locks       *lockScanner
	starts      *tailStarts
	reads       preparedStatements
}

// newEventReads returns the reads of a store. number is that of the store in this process, for names of prepared
// statements.
func newEventReads(db *database, number int64) *eventReads {
	r := &eventReads{database: db, tenantLocks: tenantLocks{pool: db.pool}, locks: newLockScanner(db)}
	r.starts, r.reads.prefix = newTailStarts(r), fmt.Sprintf("millrace_read_%d", number)
	return r
}

// close ends what tails share.
func (r *eventReads) close() {
	r.starts.close()
	r.locks.close()
}

// readEvents runs a statement on tenants' events in one round trip and passes its result to decode. It limits the wait
// for locks, and returns the incarnation. Arguments are in text format.
func (r *eventReads) readEvents(ctx context.Context, sql string, args [][]byte, format []int16,
	decode func(*pgconn.ResultReader) error) (in engine.Incarnation, err error) {
	err = r.inIncarnation(ctx, func() error {
		return r.onConn(ctx, func(conn *pgx.Conn) (err error) {
			in, err = r.readOn(ctx, conn, sql, args, format, decode)
			return err
		})
	})
	return in, err
}

// readOn reads by prepared statements, if the session may have them.
func (r *eventReads) readOn(ctx context.Context, conn *pgx.Conn, sql string, args [][]byte, format []int16,
	decode func(*pgconn.ResultReader) error) (engine.Incarnation, error) {
	if name := r.reads.name(sql); name != "" && r.keepsPrepared(conn) {
		in, err := r.readPrepared(ctx, conn, name, sql, args, format, decode)
		if !forgetPrepared(ctx, conn, err, beginReadName, name) {
			return in, err
		}
	}
	var batch pgconn.Batch
	batch.ExecParams(r.control.sql("begin_read"), beginReadArgs(), nil, nil, nil)
	batch.ExecParams(sql, args, nil, nil, format)
	return sendRead(ctx, conn, &batch, decode)
}

// readPrepared reads by prepared statements, which it prepares if the session has not done so.
func (r *eventReads) readPrepared(ctx context.Context, conn *pgx.Conn, name, sql string, args [][]byte, format []int16,
	decode func(*pgconn.ResultReader) error) (engine.Incarnation, error) {
	if err := prepareAll(ctx, conn, beginReadName, r.control.sql("begin_read"), name, sql); err != nil {
		return 0, err
	}
	var batch pgconn.Batch
	batch.ExecPrepared(beginReadName, beginReadArgs(), nil, nil)
	batch.ExecPrepared(name, args, nil, format)
	return sendRead(ctx, conn, &batch, decode)
}

func beginReadArgs() [][]byte { return [][]byte{wire.Int(readLockWait.Milliseconds())} }

// sendRead sends begin_read.sql and a statement in one message, and passes the result of the statement to decode.
func sendRead(ctx context.Context, conn *pgx.Conn, batch *pgconn.Batch,
	decode func(*pgconn.ResultReader) error) (in engine.Incarnation, err error) {
	results := conn.PgConn().ExecBatch(ctx, batch)
	for i := 0; results.NextResult(); i++ {
		if i > 0 {
			err = decode(results.ResultReader())
			continue
		}
		row := results.ResultReader()
		for row.NextRow() {
			seen, parseErr := strconv.ParseInt(string(row.Values()[1]), 10, 64)
			in, err = engine.Incarnation(seen), parseErr
		}
		if _, closeErr := row.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			break
		}
	}
	if closeErr := results.Close(); closeErr != nil {
		err = closeErr
	}
	return in, err
}

// readOf is readEvents for one tenant. If the tenant's events are locked, the error names the sessions that
// lock them. It is the fault of that tenant alone, not of the server.
func (r *eventReads) readOf(ctx context.Context, t namedTenant, sql string, args [][]byte, format []int16,
	decode func(*pgconn.ResultReader) error) (engine.Incarnation, error) {
	holders, err := r.tenantLocks.holdersOf(ctx, t.schema)
	if err != nil {
		return 0, err
	}
	if len(holders) > 0 {
		return 0, &faults.Fault{Class: faults.Infrastructure, Err: errLockedBy(holders)}
	}
	in, err := r.readEvents(ctx, sql, args, format, decode)
	if !pgerr.Is(err, pgerr.LockNotAvailable) {
		return in, err
	}
	holders = []string{"a session that has ended"}
	if locks, findErr := r.tenantLocks.find(ctx, time.Now()); findErr == nil && len(locks.holders[t.schema]) > 0 {
		holders = locks.holders[t.schema]
	}
	return 0, &faults.Fault{Class: faults.Infrastructure, Err: fmt.Errorf("%w: %w", errLockedBy(holders), err)}
}

// readNumbers is readOf for rows of numbers, in an incarnation of the server.
func (r *eventReads) readNumbers(ctx context.Context, t namedTenant, in engine.Incarnation, statement string,
	args [][]byte, row func(row []int64)) error {
	now, err := r.readOf(ctx, t, t.sql(statement), args, nil, func(rows *pgconn.ResultReader) error {
		return wire.ReadInts(rows, row)
	})
	if err == nil && now != in {
		err = event.ErrIncarnationChanged
	}
	return err
}
