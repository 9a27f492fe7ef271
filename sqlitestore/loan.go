package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"sync/atomic"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// loan guards the transactions of a connection, which it lends to functions of users. A *sql.Tx cannot be wrapped. So
// the guard is below it: in the driver's connection, and in SQLite's hooks, which are called at every commit and
// rollback. Its methods do nothing for a nil loan.
type loan struct {
	phase atomic.Int32
	// ended reports that the transaction was rolled back while it was lent.
	ended atomic.Bool
	// lends counts the functions of users that have had the connection.
	lends int
	// spoiled reports that such a function may have changed the connection for longer than its transaction.
	spoiled bool
	lentTx
	interrupter
}

// lentTx is the state of one transaction. One call at a time uses it, as conn is used.
type lentTx struct {
	// ctx bounds every statement.
	ctx context.Context
	// rows are the open rows of the user's queries.
	rows map[*lentRows]struct{}
	// leftRows reports that the function returned without closing its rows.
	leftRows bool
	// failed is the error of the last statement that failed while the transaction was lent. cause is that of the
	// statement that ended the transaction, if that failed.
	failed, cause error
	// looked reports that a statement may have changed the file's header. defined reports that one may have changed the
	// schema.
	looked, defined, noted bool
	// appending counts the appends that have begun in the transaction and have not ended.
	appending int
	tx        *loanedTx
}

// The phases of a transaction.
const (
	// phaseOwn is that of a transaction of the store.
	phaseOwn int32 = iota
	// phaseLent is that of a transaction that a function of the user has. It cannot commit.
	phaseLent
	// phaseReturned follows when the function has returned. Only the store's statements are admitted, since the
	// function may have left goroutines behind.
	phaseReturned
	// phaseCommit is that of the commit of a transaction that was lent, and phaseDone follows.
	phaseCommit
	phaseDone
	// phaseTaken is that of a connection whose function did not return. Nothing is admitted any more.
	phaseTaken
)

func newLoan(base driver.Conn) *loan {
	l := &loan{}
	l.open(base)
	return l
}

// begin begins the store's own transaction.
func (l *loan) begin(tx driver.Tx) *loanedTx {
	l.lentTx = lentTx{tx: &loanedTx{Tx: tx, loan: l}}
	l.ended.Store(false)
	l.phase.Store(phaseOwn)
	return l.tx
}

// bind bounds all statements of the transaction by a context.
func (l *loan) bind(ctx context.Context) {
	l.ctx = ctx
	l.watch(ctx)
}

// unbind removes the bound that bind has set.
func (l *loan) unbind() {
	l.ctx = nil
	l.unwatch()
}

// lend admits the statements of a function of the user, until ctx ends.
func (l *loan) lend(ctx context.Context) {
	l.bind(ctx)
	l.lends++
	l.tx.lent = true
	l.rows = make(map[*lentRows]struct{})
	l.phase.Store(phaseLent)
}

// takeBack ends the use by the function. The store's statements are bounded by ctx from now on.
func (l *loan) takeBack(ctx context.Context) {
	l.leftRows = l.leftRows || len(l.rows) > 0
	l.phase.Store(phaseReturned)
	l.closeRows(sql.ErrTxDone)
	l.bind(ctx)
}

// commit commits a transaction that was lent. The goroutines that a function left behind can only end the transaction
// before or after that.
func (l *loan) commit() error {
	if l.ended.Load() {
		return sql.ErrTxDone
	}
	if l.appending > 0 {
		return fmt.Errorf("commit refused: AppendTx had not returned when the function did: %w", ErrTxControl)
	}
	l.unbind() // an interrupt that comes later would make the connection unusable
	l.phase.Store(phaseCommit)
	defer l.phase.Store(phaseDone)
	l.tx.done = true
	return l.tx.Tx.Commit()
}

// ran follows a statement of the store that succeeded.
func (l *loan) ran(query string) {
	switch {
	case l == nil:
	case query == queries.Text("savepoint"):
		l.appending++
	case query == queries.Text("release_savepoint"):
		l.appending--
	}
}

// end follows the end of the transaction.
func (l *loan) end() {
	l.unbind()
	l.phase.Store(phaseOwn)
}

// takeAway ends the use by a function that does not return, and rolls back. It returns an error if that fails.
func (l *loan) takeAway(rollback func() error) error {
	l.phase.Store(phaseTaken)
	l.unwatch()
	l.closeRows(driver.ErrBadConn)
	if l.ended.Load() || l.tx.done {
		return nil
	}
	return rollback()
}

func (l *loan) closeRows(err error) {
	for rows := range maps.Clone(l.rows) {
		_ = rows.Close()
		rows.closed = err
	}
}

// ofStore is the key by which the store marks the contexts of its statements.
type ofStore struct{}

// admit returns the context for a statement, or why it must not run. The transaction's own context interrupts
// statements, so the driver need not watch it.
func (l *loan) admit(ctx context.Context) (context.Context, error) {
	if l == nil {
		return ctx, nil
	}
	switch l.phase.Load() {
	case phaseTaken:
		return nil, driver.ErrBadConn
	case phaseDone:
		return nil, sql.ErrTxDone
	case phaseReturned:
		if ctx.Value(ofStore{}) == nil {
			return nil, sql.ErrTxDone
		}
	}
	if l.ctx == nil {
		return ctx, nil
	}
	if err := l.ctx.Err(); err != nil {
		return nil, l.note(err)
	}
	if l.ended.Load() {
		// The statement would commit by itself.
		return nil, fmt.Errorf("the transaction was ended: %w", ErrTxControl)
	}
	if ctx.Done() == l.ctx.Done() {
		return context.Background(), nil
	}
	return ctx, nil
}

// note notes and returns the error of a statement.
func (l *loan) note(err error) error {
	if l == nil {
		return err
	}
	if is(err, sqlite3.SQLITE_INTERRUPT) && l.ctx != nil && l.ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", l.ctx.Err(), err)
	}
	err = refused(err)
	if l.phase.Load() != phaseLent {
		return err
	}
	if err != nil {
		l.failed = err
	}
	if l.ended.Load() && !l.noted {
		l.noted, l.cause = true, err
	}
	return err
}

// decisive returns the error of a user's statement that explains a failure best. That is the error that ended the
// transaction. Without such an error it is the last one.
func (l *loan) decisive() error {
	if l.cause != nil {
		return l.cause
	}
	return l.failed
}

// refused returns ErrTxControl for a commit that the hook refused.
func refused(err error) error {
	var failed *sqlite.Error
	if errors.As(err, &failed) && failed.Code() == sqlite3.SQLITE_CONSTRAINT_COMMITHOOK {
		return fmt.Errorf("commit refused: %w", ErrTxControl)
	}
	return err
}

// spoils finds words of statements whose effect may outlast a transaction, wherever they stand in the text.
var spoils = regexp.MustCompile(`(?i)\b(pragma|attach|detach|temp|temporary)\b`)

// defines finds words of statements that may change the schema.
var defines = regexp.MustCompile(`(?i)\b(create|alter|drop|pragma)\b`)

// lent reports whether a function of the user has the connection.
func (l *loan) lent() bool { return l != nil && l.phase.Load() == phaseLent }

// look notes what a statement of the user may change besides rows. It reports whether it may change the schema.
func (l *loan) look(query string) (defining bool) {
	if !l.lent() {
		return false
	}
	if spoils.MatchString(query) {
		l.looked, l.spoiled = true, true
	}
	defining = defines.MatchString(query)
	l.defined = l.defined || defining
	return defining
}

// reusable reports whether the connection may be used for another transaction.
func (l *loan) reusable() bool { return !l.spoiled && l.phase.Load() != phaseTaken }

// mayCommit is SQLite's commit hook. A result other than 0 turns the commit into a rollback.
func (l *loan) mayCommit() int32 {
	switch l.phase.Load() {
	case phaseOwn, phaseCommit:
		return 0
	}
	return 1
}

// rolledBack is SQLite's rollback hook.
func (l *loan) rolledBack() {
	if l.phase.Load() != phaseOwn {
		l.ended.Store(true)
	}
}

// loanedTx is a transaction of a connection that writes.
type loanedTx struct {
	driver.Tx
	loan *loan
	// lent reports that a function of the user has or had the transaction. It, or a goroutine that it left behind, may
	// commit or roll back at any time.
	lent bool
	// done reports that the transaction has ended.
	done bool
}

// Commit refuses to commit a transaction that was lent.
func (tx *loanedTx) Commit() error {
	if !tx.lent {
		return tx.Tx.Commit()
	}
	// database/sql considers the transaction over now, so it must be rolled back.
	return errors.Join(fmt.Errorf("commit refused: %w", ErrTxControl), tx.Rollback())
}

func (tx *loanedTx) Rollback() error {
	switch {
	case tx.loan.phase.Load() == phaseTaken:
		return driver.ErrBadConn
	case tx.done:
		return nil
	}
	tx.done = true
	return tx.Tx.Rollback()
}
