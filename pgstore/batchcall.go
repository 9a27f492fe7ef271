package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/internal/usererror"
	"github.com/millrace-go/millrace/pgstore/internal/guard"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/projection"
)

// askTime bounds a query about the state of the server after something failed.
const askTime = 2 * time.Second

// call runs the handler in a goroutine of its own: a handler may hang or end its goroutine. If it fails, the error is
// an *faults.Fault.
func (b *batchTx) call(ctx context.Context, leased *leasedConn, pid uint32, tx *guard.Tx,
	fn func(context.Context, pgx.Tx) error) error {
	// Goroutines that the handler left behind must not use the connection later.
	defer tx.Close()
	called := handlerCall{tx: tx, conn: leased.conn.PgConn()}
	late := func() error {
		waits, err := b.asks(ctx, "waits_for_lock", pid)
		// If the server does not answer, the handler is not at fault.
		called.infrastructure = waits || err != nil
		called.probe = !waits
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
	return faults.OfCall(ctx, r, &called)
}

// handlerCall is what is known about the call of a handler. infrastructure reports that at its limit the handler waited
// for a lock, or that the server did not answer. The latter asks for a probe.
type handlerCall struct {
	tx                    *guard.Tx
	conn                  *pgconn.PgConn
	infrastructure, probe bool
}

func (c *handlerCall) Works() bool { return !c.conn.IsClosed() }

func (c *handlerCall) Excuse(fault *faults.Fault) {
	noted := c.tx.Fault()
	switch class := returnedClass(noted); {
	case c.infrastructure:
		fault.Class, fault.Probe = faults.Infrastructure, c.probe
	case pgerr.FromServer(noted) && class != faults.Interrupted: // the end of the context may have cancelled it
		fault.SetClass(class)
	}
}

// Returned classifies an error that a handler returned. A fault of the batch's own connection decides, even if the
// handler returned another error or none. Otherwise the handler's error decides, for instance that of a web service.
func (c *handlerCall) Returned(err error) error {
	noted := c.tx.Fault()
	aborted := noted != nil && c.conn.TxStatus() == 'E'
	switch {
	case err == nil && aborted:
		return faults.Ignored(classify(noted).Class.OfHandler(), noted)
	case err == nil:
		return nil
	}
	// A statement that timed out by the handler's own context looks like one whose server is gone. Recording the
	// failure needs the server, and so distinguishes the two.
	ownTimeout := pgconn.Timeout(noted) || errors.Is(noted, context.DeadlineExceeded) ||
		errors.Is(noted, context.Canceled)
	fault := faults.Returned(returnedClass(err), err)
	switch {
	case ownTimeout:
	case noted != nil && c.conn.IsClosed(), aborted && pgerr.FromServer(noted):
		// If the transaction still works, the handler undid the fault by a savepoint, or misused the connection, for
		// instance by a statement while rows of another were open.
		if class := classify(noted).Class.OfHandler(); class != faults.Handler {
			fault.DecidedBy(class, noted)
		}
	case c.conn.IsClosed():
		fault.SetClass(faults.Unclear)
		fault.Returned, fault.Err = false, fmt.Errorf("connection lost while the handler ran: %w", err)
	}
	return fault
}

var _ = usererror.RecognizeType[*pgconn.PgError]()

// returnedClass returns the class of the SQLSTATE of an error that a handler returned, or faults.Handler.
func returnedClass(err error) faults.Class {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return classOf(pgErr).OfHandler()
	}
	return faults.Handler
}

// asks asks a question about a backend. It dials a connection, by SessionDSN if that is set, because the pool may be
// exhausted. If that fails, it uses the pool.
func (b *batchTx) asks(ctx context.Context, question string, pid uint32) (yes bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	ask := b.store.pool.QueryRow
	if conn, err := b.store.dial(ctx, b.store.opts.SessionDSN); err == nil {
		defer func() { _ = conn.Close(ctx) }()
		ask = conn.QueryRow
	}
	err = ask(ctx, queries.Text(question), pgx.QueryExecModeExec, int32(pid)).Scan(&yes)
	return yes, err
}
