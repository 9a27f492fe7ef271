package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// transaction is a transaction of the writer.
type transaction struct {
	*sql.Tx
	writer *writer
	// session keeps the connection until the end, also if a function of the user ended the transaction.
	session *sql.Conn
	loan    *loan
	log     logFiles
}

// open waits for the connection and begins a transaction. It waits for other processes for at most busy, if that is not
// 0. end must follow.
func (w *writer) open(ctx context.Context, busy time.Duration) (*transaction, error) {
	if err := w.take(ctx); err != nil {
		return nil, fmt.Errorf("begin transaction: %w", err)
	}
	waiting := ctx
	if busy > 0 {
		limited, cancel := context.WithTimeout(ctx, busy)
		defer cancel()
		waiting = limited
	}
	t, err := w.begin(waiting, ctx)
	if err != nil {
		w.give()
		return nil, err
	}
	return t, nil
}

// openFresh is open on a connection that no function of a user has had.
func (w *writer) openFresh(ctx context.Context, busy time.Duration) (*transaction, error) {
	for {
		t, err := w.open(ctx, busy)
		if err != nil || t.loan.lends == 0 {
			return t, err
		}
		t.loan.spoiled = true
		t.end()
	}
}

// begin begins a transaction that writes. It waits for other processes until ctx ends. The statements of the
// transaction are bounded by txCtx. The caller has the connection. release must follow.
func (w *writer) begin(ctx, txCtx context.Context) (t *transaction, err error) {
	t, err = w.beginInTurn(ctx, txCtx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err != nil {
		return nil, fmt.Errorf("begin transaction: %w", err)
	}
	if err := t.checkBegun(ctx); err != nil {
		t.release()
		return nil, fmt.Errorf("begin transaction: %w", err)
	}
	return t, nil
}

// beginInTurn begins a transaction when the processes that have waited longer have begun theirs.
func (w *writer) beginInTurn(ctx, txCtx context.Context) (t *transaction, err error) {
	leave, err := w.queue.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	err = retryBusy(ctx, func() error {
		t, err = w.tryBegin(ctx, txCtx)
		return err
	})
	return t, err
}

// checkBegun returns why a transaction that has just begun must not write.
func (t *transaction) checkBegun(ctx context.Context) error {
	at := t.writer.at
	if err := at.check(); err != nil {
		return err
	}
	if err := at.checkLog(t.log); err != nil {
		return err
	}
	if err := resync(at.path); err != nil {
		return err
	}
	return t.writer.checkCommitted(ctx, t.Tx)
}

func (w *writer) tryBegin(ctx, txCtx context.Context) (*transaction, error) {
	session, err := w.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &transaction{writer: w, session: session}
	// The loan ends statements when txCtx ends. database/sql would also roll back, at any moment.
	t.Tx, err = session.BeginTx(context.WithoutCancel(txCtx), nil)
	if err != nil {
		return nil, errors.Join(err, session.Close())
	}
	err = t.onConn(func(c *conn) error {
		if slices.Contains(c.log[:], nil) {
			indexesMu.Lock()
			c.log = c.index.log(w.at)
			indexesMu.Unlock()
		}
		t.loan, t.log = c.loan, c.log
		t.loan.bind(txCtx)
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return t, nil
}

// onConn calls fn while no other call of the connection runs.
func (t *transaction) onConn(fn func(c *conn) error) error {
	return t.session.Raw(func(driverConn any) error { return fn(driverConn.(*conn)) })
}

// release rolls back, unless the transaction has ended, and releases the connection.
func (t *transaction) release() {
	if t.loan.phase.Load() == phaseLent {
		t.takeBack(context.Background())
	}
	if t.loan.leftRows {
		t.takeAway()
		go t.forget()
		return
	}
	// An interrupt of the rollback would leave the transaction open.
	_ = t.onConn(func(c *conn) error {
		c.loan.unwatch()
		return nil
	})
	_ = t.Tx.Rollback()
	_ = t.onConn(func(c *conn) error {
		c.loan.end()
		return nil
	})
	t.limitLog()
	_ = t.session.Close()
}

// end is release for a transaction of open.
func (t *transaction) end() {
	t.release()
	t.writer.give()
}

// lend lends the transaction to a function of the user until takeBack. ctx bounds its statements.
func (t *transaction) lend(ctx context.Context) {
	_ = t.onConn(func(c *conn) error {
		c.loan.lend(ctx)
		return nil
	})
}

// takeBack waits for the running statement. The function cannot use the transaction any more. takeBack returns the
// context for the statements of the store that follow.
func (t *transaction) takeBack(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, ofStore{}, true)
	_ = t.onConn(func(c *conn) error {
		c.loan.takeBack(ctx)
		return nil
	})
	return ctx
}

// ended returns why a lent transaction has ended, nil if it has not. SQLite ends a transaction by itself after some
// errors, for instance if the disk is full.
func (t *transaction) ended() error {
	cause := t.loan.cause
	switch {
	case !t.loan.ended.Load():
		return nil
	case cause == nil, errors.Is(cause, ErrTxControl):
		return fmt.Errorf("the transaction was ended: %w", ErrTxControl)
	case is(cause, sqlite3.SQLITE_CONSTRAINT):
		return fmt.Errorf("the transaction was ended: %w: %w", ErrTxControl, cause)
	}
	return fmt.Errorf("a statement failed, and SQLite rolled back the transaction: %w", cause)
}

// commit commits a transaction that was lent. ctx is that of takeBack.
func (t *transaction) commit(ctx context.Context) error {
	if t.loan.looked {
		if err := t.writer.checkHeader(ctx, t.Tx); err != nil {
			return err
		}
	}
	err := t.onConn(func(c *conn) error { return c.loan.commit() })
	if errors.Is(err, sql.ErrTxDone) {
		err = fmt.Errorf("the transaction was ended: %w", ErrTxControl)
	}
	if err := afterCommit(t.writer.at.path, err); err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	return nil
}

// abandon takes the connection from a function that does not return. Nothing that the function does later reaches the
// file. abandon waits for the running statement, which was interrupted, and for no longer than finishTime. If the
// statement runs on, for instance in a function of the user that SQLite calls, then it keeps the file until it ends.
func (t *transaction) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	taken := make(chan struct{})
	go func() {
		t.takeAway()
		t.writer.give()
		close(taken)
		t.forget()
	}()
	select {
	case <-taken:
	case <-ctx.Done():
	}
}

// takeAway rolls back, unless the transaction has ended. Nothing is admitted on the connection any more.
func (t *transaction) takeAway() {
	_ = t.onConn(func(c *conn) error { return c.loan.takeAway(c.rollback) })
}

// forget gives the connection of takeAway back to database/sql, which closes it. Open rows of the function may delay
// that: if the function has scanned a row into sql.RawBytes, database/sql waits until it closes the rows.
func (t *transaction) forget() {
	_ = t.Tx.Rollback()
	_ = t.session.Close()
}

// transact runs fn in a transaction, which it commits if fn returns nil.
func (w *writer) transact(ctx context.Context, fn func(tx *sql.Tx) error) error {
	t, err := w.open(ctx, 0)
	if err != nil {
		return err
	}
	defer t.end() // also when fn panics
	if err := fn(t.Tx); err != nil {
		return err
	}
	return w.commit(t.Tx)
}

// lend is transact for a function of the user, which cannot end the transaction.
func (w *writer) lend(ctx context.Context, fn func(tx *sql.Tx) error) error {
	t, err := w.open(ctx, 0)
	if err != nil {
		return err
	}
	defer t.end()
	t.lend(ctx)
	if err := fn(t.Tx); err != nil {
		return err
	}
	ctx = t.takeBack(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("commit transaction: %w", context.Cause(ctx))
	}
	if err := t.ended(); err != nil {
		return err
	}
	if err := t.checkLeft(ctx); err != nil {
		return err
	}
	return t.commit(ctx)
}

// checkHeader returns an error if the transaction changed fields of the file's header that belong to the store.
func (w *writer) checkHeader(ctx context.Context, tx *sql.Tx) error {
	for _, field := range []string{"application_id", "user_version"} {
		was, err := number(ctx, w.committed, field)
		if err != nil {
			return err
		}
		is, err := number(ctx, tx, field)
		if err != nil {
			return err
		}
		if is != was {
			return fmt.Errorf("the transaction changed %s, which belongs to the store: %w", field, ErrTxControl)
		}
	}
	return nil
}
