package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
)

const (
	// busyTimeout is how long SQLite waits for the lock of another process at a time. SQLite does not check
	// contexts meanwhile, so the wait is short, and repeated. queries/limit_log.sql has the same time.
	busyTimeout = 5 * time.Millisecond
	// busyPause is the pause between two attempts to get a lock for which SQLite does not wait.
	busyPause = time.Millisecond
	// checkpointPages is the number of pages in the write-ahead log at which a commit copies them into the file: 16
	// MiB. With fewer, pages that change often are copied more often. With more, opening the file after a crash takes
	// longer.
	checkpointPages = 4096
)

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("the store is closed")

// writer has the only connection that writes, and lends it to one transaction at a time, in the order of their
// requests.
type writer struct {
	at *location
	db *sql.DB
	// committed reads committed data, over other connections.
	committed querier
	// turn has an element while no transaction has the connection.
	turn chan struct{}
	// waits counts the waits for the connection.
	waits engine.WaitCounter
	// queue orders all processes that write to the file.
	queue *fileQueue

	// checkedSchema is the schema_version at which a transaction of the store last found no foreign objects.
	checkedSchema atomic.Int64

	// logLimit is by how much the log grows until it is emptied, and triedLog its size when that was last tried. The
	// holder of the connection uses them.
	logLimit, triedLog int64

	mu sync.Mutex
	// waiting are the appends that no transaction has taken yet. Those that are alone stand first.
	waiting []*waitingAppend
	// close waits until no transaction has the connection, and closes it. closed is closed when close begins.
	closed chan struct{}
	close  func() error
}

// waitingAppend is an append that waits for a transaction. That is a transaction of appends, or the transaction of a
// batch, which the append rides in.
type waitingAppend struct {
	eventlog.Append
	// apply runs the append in the transaction.
	apply func(ctx context.Context, tx *sql.Tx) (event.Appended, error)
	// done is closed when the transaction has ended. result and err are set before.
	done   chan struct{}
	result event.Appended
	err    error
	// alone reports that the append needs a transaction of its own, since a shared one failed.
	alone bool
	// back has an element after the append shared a transaction that failed. The append waits again then.
	back chan struct{}
	// since is when the append began to wait for the connection. It is zero if the connection was free.
	since time.Time
}

func newWaitingAppend(a eventlog.Append, apply func(ctx context.Context,
	tx *sql.Tx) (event.Appended, error)) *waitingAppend {
	return &waitingAppend{Append: a, apply: apply, done: make(chan struct{}), back: make(chan struct{}, 1)}
}

// openWriter opens the connection that writes. If it fails, it closes at.
func openWriter(ctx context.Context, at *location, opts Options) (*writer, error) {
	synchronous := "FULL"
	if opts.Synchronous == SynchronousNormal {
		synchronous = "NORMAL"
	}
	w := &writer{turn: make(chan struct{}, 1), closed: make(chan struct{}), at: at, logLimit: logLimit}
	w.checkedSchema.Store(-1)
	var err error
	w.queue, err = openQueue(at.path)
	if err != nil {
		return nil, errors.Join(err, at.close())
	}
	if err := at.markQueue(w.queue.file); err != nil {
		return nil, errors.Join(err, w.queue.close(), at.close())
	}
	if err := retryBusy(ctx, func() error { return rollBack(ctx, at.path) }); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", at.path, damaged(err)), w.queue.close(), at.close())
	}
	w.db, err = openDB(dsn(at.path, "_txlock=immediate",
		fmt.Sprintf("_pragma=busy_timeout(%d)", busyTimeout.Milliseconds()),
		"_pragma=journal_mode(WAL)", "_pragma=synchronous("+synchronous+")", "_pragma=fullfsync(1)",
		// SQLite cuts the log when it begins it anew, such as after a long read.
		fmt.Sprintf("_pragma=journal_size_limit(%d)", logLimit),
		fmt.Sprintf("_pragma=wal_autocheckpoint(%d)", checkpointPages), "_pragma=foreign_keys(1)",
		"_pragma=secure_delete(1)"), at, true)
	if err != nil {
		return nil, errors.Join(err, w.queue.close(), at.close())
	}
	// A handler that does not return keeps its connection. Otherwise there is one.
	w.db.SetMaxIdleConns(1)
	w.close = sync.OnceValue(func() error {
		close(w.closed)
		<-w.turn
		return errors.Join(w.db.Close(), w.queue.close(), at.close())
	})
	w.turn <- struct{}{}
	if err := w.checkJournal(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", at.path, damaged(err)), w.close())
	}
	if err := at.opened(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// checkJournal returns an error if the file has no write-ahead log, which needs memory that processes share.
func (w *writer) checkJournal(ctx context.Context) error {
	var mode string
	err := retryBusy(ctx, func() error {
		return w.db.QueryRowContext(ctx, queries.Text("journal_mode")).Scan(&mode)
	})
	if err == nil && mode != "wal" {
		err = fmt.Errorf("the file system does not allow a write-ahead log: the journal mode is %s", mode)
	}
	return err
}

// emptyLog moves the write-ahead log into the file and truncates it. It returns false if another connection reads an
// older state.
func (w *writer) emptyLog(ctx context.Context) (emptied bool, err error) {
	if err := w.take(ctx); err != nil {
		return false, err
	}
	defer w.give()
	if err := w.at.check(); err != nil {
		return false, err
	}
	var busy, pages, moved int
	err = w.db.QueryRowContext(ctx, queries.Text("empty_log")).Scan(&busy, &pages, &moved)
	if is(err, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) {
		return false, nil
	}
	return busy == 0, damaged(err)
}

func openReaders(at *location, opts Options) (*sql.DB, error) {
	db, err := openDB(dsn(at.path, "_pragma=busy_timeout(10000)", "_pragma=query_only(1)"), at, false)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(opts.Readers)
	db.SetMaxIdleConns(opts.Readers)
	return db, nil
}

// take waits for the connection. give must follow.
func (w *writer) take(ctx context.Context) error {
	select {
	case <-w.closed:
		return ErrClosed
	default:
	}
	select {
	case <-w.turn:
		return nil
	default:
	}
	began := time.Now()
	select {
	case <-w.turn:
		w.waits.Ended(began)
		return nil
	case <-w.closed:
		return ErrClosed
	case <-ctx.Done():
		w.waits.GaveUp()
		return context.Cause(ctx)
	}
}

func (w *writer) give() { w.turn <- struct{}{} }

// retryBusy repeats a call until it does not fail because of another process's lock, or ctx ends.
func retryBusy(ctx context.Context, call func() error) error {
	for {
		err := call()
		if !is(err, sqlite3.SQLITE_BUSY) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w while another process writes: %w", context.Cause(ctx), err)
		case <-time.After(busyPause):
		}
	}
}

// append runs an append. Appends that wait at the same time share one transaction, in which each has a savepoint. The
// first call that gets the connection runs all of them, and each call returns after the commit. An append that is alone
// waits for no other. Appends that wait while a batch has the connection ride in the transaction of that batch (see
// riders.go).
func (w *writer) append(ctx context.Context, a *waitingAppend) (event.Appended, error) {
	if len(w.turn) == 0 {
		a.since = time.Now()
	}
	w.mu.Lock()
	w.waiting = append(w.waiting, a)
	w.mu.Unlock()
	for {
		var err error
		select {
		case <-a.done:
		case <-w.turn:
			for err == nil && w.isWaiting(a) {
				err = w.appendGroup(ctx)
			}
			w.give()
		case <-w.closed:
			err = ErrClosed
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil && w.withdraw(a) {
			if !a.since.IsZero() {
				w.waits.GaveUp()
			}
			return event.Appended{}, err
		}
		// A transaction has taken the append, and answers it at its end. If a shared transaction fails, the append
		// waits again.
		select {
		case <-a.done:
			return a.result, a.err
		case <-a.back:
		}
	}
}

// withdraw removes a waiting append. It returns false if a transaction has taken the append already.
func (w *writer) withdraw(a *waitingAppend) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.Index(w.waiting, a)
	if at < 0 {
		return false
	}
	w.waiting = slices.Delete(w.waiting, at, at+1)
	return true
}

// isWaiting reports whether no transaction has taken an append.
func (w *writer) isWaiting(a *waitingAppend) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.waiting, a)
}

// takeWaiting removes and returns the appends of the next transaction: the first one if it must be alone, or all.
func (w *writer) takeWaiting() []*waitingAppend {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) > 0 && w.waiting[0].alone {
		return w.takeFirst(1)
	}
	return w.takeFirst(len(w.waiting))
}

// takeFirst removes and returns the first n appends that wait.
func (w *writer) takeFirst(n int) []*waitingAppend {
	taken := slices.Clone(w.waiting[:n])
	w.waiting = slices.Delete(w.waiting, 0, n)
	w.countWaits(taken)
	return taken
}

// countWaits counts the waits of appends that a transaction takes.
func (w *writer) countWaits(taken []*waitingAppend) {
	for _, a := range taken {
		if !a.since.IsZero() {
			w.waits.Ended(a.since)
		}
	}
}

// appendGroup runs a transaction of waiting appends. An error means that it took none.
func (w *writer) appendGroup(ctx context.Context) error {
	// The context of one append must not end those of others.
	shared := context.WithoutCancel(ctx)
	t, err := w.begin(ctx, shared)
	if err != nil {
		return err
	}
	defer t.release()
	if group := w.takeWaiting(); len(group) == 1 {
		answer(group, w.runAlone(shared, t.Tx, group[0]))
	} else {
		_ = w.share(shared, t.Tx, group, func() error { return w.commit(t.Tx) })
	}
	return nil
}

// answer ends appends with their results, or with the error of their transaction.
func answer(group []*waitingAppend, err error) {
	for _, a := range group {
		if err != nil {
			a.result, a.err = event.Appended{}, err
		}
		close(a.done)
	}
}

// errShared is the failure of a transaction that several appends shared, or a batch and appends. It committed nothing,
// and the appends wait again.
var errShared = errors.New("the appends of the transaction are tried again, each alone")

// share runs appends in the transaction of a group or of a batch, commits, and answers the appends. If nothing was
// committed, any of those that share the transaction may be the reason. Then the error is errShared.
func (w *writer) share(ctx context.Context, tx *sql.Tx, appends []*waitingAppend, commit func() error) error {
	for _, a := range appends {
		if err := inSavepoint(ctx, tx, a); err != nil {
			w.putBack(appends)
			return fmt.Errorf("%w: %w", errShared, err)
		}
	}
	err := commit()
	if len(appends) > 0 && (is(err, sqlite3.SQLITE_CONSTRAINT) || errors.Is(err, ErrTxControl)) {
		w.putBack(appends)
		return fmt.Errorf("%w: %w", errShared, err)
	}
	// After another error of the commit, for instance one of the disk, the result is unknown.
	answer(appends, err)
	return err
}

// putBack lets appends wait again, each for a transaction of its own, before later appends.
func (w *writer) putBack(appends []*waitingAppend) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range appends {
		a.result, a.err, a.since, a.alone = event.Appended{}, nil, time.Now(), true
	}
	w.waiting = append(appends[:len(appends):len(appends)], w.waiting...)
	for _, a := range appends {
		select {
		case a.back <- struct{}{}:
		default:
		}
	}
}

// runAlone runs an append and commits. It needs no savepoint: if the append fails, the transaction is not committed. An
// error means that nothing was committed, or that the result of the commit is unknown.
func (w *writer) runAlone(ctx context.Context, tx *sql.Tx, a *waitingAppend) error {
	a.result, a.err = a.apply(ctx, tx)
	if a.err != nil {
		return nil
	}
	return w.commit(tx)
}

// inSavepoint runs an append and sets its result. An error means that the whole transaction is over.
func inSavepoint(ctx context.Context, tx *sql.Tx, a *waitingAppend) error {
	return savepoint(ctx, tx, func() error {
		a.result, a.err = a.apply(ctx, tx)
		return a.err
	})
}

// savepoint runs fn, and undoes what it wrote if it fails. It returns an error of its own statements alone: then the
// whole transaction is over.
func savepoint(ctx context.Context, tx *sql.Tx, fn func() error) error {
	if err := execute(ctx, tx, "savepoint"); err != nil {
		return err
	}
	failed := fn()
	ctx = context.WithoutCancel(ctx) // what was written is undone, also after ctx has ended
	if failed != nil {
		if err := execute(ctx, tx, "rollback_savepoint"); err != nil {
			return errors.Join(failed, err)
		}
	}
	return execute(ctx, tx, "release_savepoint")
}
