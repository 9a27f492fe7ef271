package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/internal/usererror"
	"github.com/millrace-go/millrace/pgstore/internal/guard"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/projection"
)

// askTime bounds a query about the state of the server after something failed.
const askTime = 2 * time.Second

// call runs the handler in a goroutine of its own: a handler may hang or end its goroutine. If it fails, the error is
// an *engine.Fault.
func (b *batchTx) call(ctx context.Context, leased *leasedConn, pid uint32, tx *guard.Tx,
	fn func(context.Context, pgx.Tx) error) error {
	// Goroutines that the handler left behind must not use the connection later.
	defer tx.Close()
	pgConn := leased.conn.Conn().PgConn()
	infrastructure := false
	late := func() error {
		waits, err := b.waitsForLock(ctx, pid)
		// If the server does not answer, the handler is not at fault.
		infrastructure = waits || err != nil
		if waits {
			return projection.ErrLockWait
		}
		return projection.ErrTimeout
	}
	r := usercode.Within(ctx, b.opts.timeout, late, func(ctx context.Context) error { return fn(ctx, tx) })
	if r.Abandoned {
		leased.abandon()
		b.store.handling.abandoned.Add(1)
	}
	switch {
	case r.Cause == nil:
		return handlerFault(r.Err, tx, pgConn)
	case ctx.Err() != nil:
		return engine.CancelledFault(r.Cause)
	case r.Err == nil && !pgConn.IsClosed():
		return nil // it finished in time, on a connection that still works
	}
	fault := engine.LateFault(r.Cause, r.Err)
	noted := tx.Fault()
	switch class := returnedClass(noted); {
	case infrastructure:
		fault.Class, fault.Probe = engine.Infrastructure, r.Cause == projection.ErrTimeout
	case pgerr.FromServer(noted) && class != engine.Interrupted: // the end of ctx may have cancelled it
		fault.Class, fault.Probe = class, class == engine.Unclear
	}
	return fault
}

// handlerFault classifies an error that a handler returned. A fault of the batch's own connection decides, even if the
// handler returned another error. Otherwise the handler's error decides, for instance that of a web service.
func handlerFault(err error, tx *guard.Tx, conn *pgconn.PgConn) error {
	if err == nil {
		return nil
	}
	noted := tx.Fault()
	// A statement that timed out by the handler's own context looks like one whose server is gone. Recording the
	// failure needs the server, and so distinguishes the two.
	ownTimeout := pgconn.Timeout(noted) || errors.Is(noted, context.DeadlineExceeded) ||
		errors.Is(noted, context.Canceled)
	fault := engine.ReturnedFault(returnedClass(err), err)
	switch {
	case ownTimeout:
	case noted != nil && (conn.IsClosed() || pgerr.FromServer(noted) && conn.TxStatus() == 'E'):
		// If the transaction still works, the handler undid the fault by a savepoint, or misused the connection, for
		// instance by a statement while rows of another were open.
		if class := classify(noted).Class.OfHandler(); class != engine.HandlerFault {
			fault.Class, fault.Returned = class, false
			if !errors.Is(err, noted) {
				fault.Err = errors.Join(err, noted)
			}
		}
	case conn.IsClosed():
		fault.Class, fault.Returned, fault.Err = engine.Unclear, false,
			fmt.Errorf("connection lost while the handler ran: %w", err)
	}
	fault.Probe = fault.Class == engine.Unclear
	return fault
}

var _ = usererror.RecognizeType[*pgconn.PgError]()

// returnedClass returns the class of the SQLSTATE of an error that a handler returned, or HandlerFault.
func returnedClass(err error) engine.Class {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return classOf(pgErr).OfHandler()
	}
	return engine.HandlerFault
}

// waitsForLock reports whether a backend waits for a lock. It dials a connection, by SessionDSN if that is set, because
// the pool may be exhausted. If that fails, it uses the pool.
func (b *batchTx) waitsForLock(ctx context.Context, pid uint32) (waits bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := b.store.dial(ctx, b.store.opts.SessionDSN)
	if err != nil {
		err = b.store.pool.QueryRow(ctx, queries.Text("waits_for_lock"), pgx.QueryExecModeExec, int32(pid)).Scan(&waits)
		return waits, err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, queries.Text("waits_for_lock"), pgx.QueryExecModeExec, int32(pid)).Scan(&waits)
	return waits, err
}
