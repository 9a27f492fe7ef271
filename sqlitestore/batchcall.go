package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
)

// call runs the handler in a goroutine of its own: a handler may hang or end its goroutine. If it fails, the error is
// an *faults.Fault. The transaction stays lent, unless the handler is abandoned.
func (b *batchTx) call(ctx context.Context, t *transaction,
	fn func(context.Context, *sql.Tx) error) (abandoned bool, err error) {
	b.store.appended.Store(t.Tx, &b.to)
	defer b.store.appended.Delete(t.Tx)
	late := func() error { return projection.ErrTimeout }
	r := usercode.Within(ctx, b.timeout, late, func(ctx context.Context) error {
		t.lend(ctx)
		return fn(ctx, t.Tx)
	})
	if r.Abandoned {
		b.store.abandoned.Add(1)
	} else {
		ctx = t.takeBack(ctx)
	}
	return r.Abandoned, faults.OfCall(ctx, r, handlerCall{ctx, t, r.Abandoned})
}

// handlerCall is what is known about the call of a handler.
type handlerCall struct {
	ctx       context.Context
	t         *transaction
	abandoned bool
}

// Works reports whether the limit cut off no statement.
func (c handlerCall) Works() bool { return c.t.ended() == nil && !cutOff(c.t.loan.failed) }

// Excuse leaves the fault of a handler that was abandoned: it may still use the transaction.
func (c handlerCall) Excuse(fault *faults.Fault) {
	if c.abandoned {
		return
	}
	if class := statementClass(c.t.loan.decisive()); isOutage(class) {
		fault.SetClass(class)
	}
}

// Returned classifies an error that a handler returned. A fault of the file decides, even if the handler returned
// another error or none. Otherwise the handler's error decides, for instance that of a web service.
func (c handlerCall) Returned(err error) error {
	if err == nil {
		return leftFault(c.ctx, c.t)
	}
	fault, noted := faults.Returned(returnedClass(err), err), c.t.loan.decisive()
	class := statementClass(noted)
	// A statement that fails does not end the transaction, so the handler may have handled that error. The text of the
	// handler's error shows whether it is about that statement.
	if isOutage(class) || class != faults.Handler &&
		(c.t.ended() != nil || strings.Contains(err.Error(), noted.Error())) {
		fault.DecidedBy(class, noted)
		fault.Err = damaged(fault.Err)
	}
	if is(noted, sqlite3.SQLITE_READONLY) {
		if left := c.t.checkLeft(c.ctx); errors.Is(left, ErrTxControl) {
			return &faults.Fault{Class: faults.Handler, Err: errors.Join(fault.Err, left)}
		}
	}
	return fault
}

// leftFault returns the fault of a handler that returned no error, but left the transaction unfit for the store's
// statements.
func leftFault(ctx context.Context, t *transaction) error {
	if err := ignoredError(t); err != nil {
		return err
	}
	err := t.checkLeft(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrForeignObject), errors.Is(err, ErrTxControl):
		return &faults.Fault{Class: faults.Handler, Err: err}
	}
	return storeFault(err)
}

// ignoredError returns the fault of a handler that returned no error, although its transaction has ended.
func ignoredError(t *transaction) error {
	ended := t.ended()
	if ended == nil {
		return nil
	}
	if class := statementClass(t.loan.cause); isOutage(class) {
		return faults.Ignored(class, t.loan.cause)
	}
	return &faults.Fault{Class: faults.Handler, Err: ended}
}

// statementClass returns the class of the error of a handler's statement, faults.Handler for none. A statement may end
// with a context of the handler's own.
func statementClass(err error) faults.Class {
	if err == nil || cutOff(err) {
		return faults.Handler
	}
	return classify(err).Class
}

// isOutage reports whether a fault of that class is one of the file or the machine.
func isOutage(class faults.Class) bool {
	return class == faults.Unclear || class == faults.Infrastructure || class == faults.Configuration
}

// cutOff reports whether an error says that a context ended.
func cutOff(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// finishFault classifies the error of a statement after the handler.
func finishFault(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return &faults.Fault{Class: faults.Handler, Err: fmt.Errorf("the transaction was ended: %w", ErrTxControl)}
	}
	return storeFault(err)
}
