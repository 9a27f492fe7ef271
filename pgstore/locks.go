package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore/internal/settle"
)

// scanInterval limits lock scans to some 30 a second. Reading pg_locks stops the lock manager for a moment, and 200
// times a second slow writers down.
const scanInterval = 33 * time.Millisecond

// errClosed is returned if the store was closed while it was in use.
var errClosed = errors.New("the store is closed")

// lockScanner finds the transactions that hold locks on events tables. One scan at a time serves every tenant that
// joined before it began.
type lockScanner struct {
	db *database
	// open ends when the scanner is closed.
	open  context.Context
	end   context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex
	next    *lockScan
	running bool
	last    time.Time
}

// lockScan is one scan. done is closed when it has ended.
type lockScan struct {
	schemas []string
	done    chan struct{}
	holders map[string][]settle.Holder
	in      engine.Incarnation
	err     error
}

func newLockScanner(db *database) *lockScanner {
	open, end := context.WithCancel(context.Background())
	return &lockScanner{db: db, open: open, end: end}
}

// scan returns the transactions that hold the events tables of tenants' schemas, by schema, and the incarnation of the
// scanned server. The scan begins after the call.
func (l *lockScanner) scan(ctx context.Context, schemas ...string) (map[string][]settle.Holder,
	engine.Incarnation, error) {
	scan, err := l.join(schemas)
	if err != nil {
		return nil, 0, err
	}
	select {
	case <-scan.done:
		return scan.holders, scan.in, scan.err
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

// join adds schemas to the scan that begins next.
func (l *lockScanner) join(schemas []string) (*lockScan, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open.Err() != nil {
		return nil, fmt.Errorf("scan locks on events: %w", errClosed)
	}
	if l.next == nil {
		l.next = &lockScan{done: make(chan struct{})}
	}
	l.next.schemas = append(l.next.schemas, schemas...)
	if !l.running {
		l.running = true
		l.ended.Go(l.run)
	}
	return l.next, nil
}

// run scans until no caller waits. If the scanner is closed, scans fail.
func (l *lockScanner) run() {
	for wait := l.wait(); wait >= 0; wait = l.wait() {
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-l.open.Done():
			pause.Stop()
		}
		scan := l.begin()
		ctx, cancel := context.WithTimeout(l.open, 10*time.Second)
		scan.err = l.db.inIncarnation(ctx, func() error { return l.read(ctx, scan) })
		cancel()
		if scan.err != nil && l.open.Err() != nil {
			scan.err = fmt.Errorf("scan locks on events: %w", errClosed)
		}
		close(scan.done)
	}
}

// wait returns how long to wait before the next scan. Without callers it ends running and returns -1.
func (l *lockScanner) wait() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		l.running = false
		return -1
	}
	return max(0, scanInterval-time.Since(l.last))
}

// begin returns the next scan. Later callers join the one after it.
func (l *lockScanner) begin() *lockScan {
	l.mu.Lock()
	defer l.mu.Unlock()
	scan := l.next
	l.next, l.last = nil, time.Now()
	return scan
}

// close ends a scan in progress and waits for it.
func (l *lockScanner) close() {
	l.mu.Lock()
	l.end()
	l.mu.Unlock()
	l.ended.Wait()
}

func (l *lockScanner) read(ctx context.Context, scan *lockScan) error {
	return wrap(l.db.onConn(ctx, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, l.db.control.sql("lock_holders"), scan.schemas)
		return scan.collect(rows)
	}), "scan locks on events")
}

// collect scans the rows of lock_holders.sql.
func (scan *lockScan) collect(rows pgx.Rows) error {
	scan.holders = make(map[string][]settle.Holder)
	var schema, transaction *string
	var pid *int32
	_, err := pgx.ForEachRow(rows, []any{&scan.in, &schema, &transaction, &pid}, func() error {
		if schema != nil && transaction != nil {
			h := settle.Holder{Transaction: *transaction}
			if pid != nil {
				h.PID = *pid
			}
			scan.holders[*schema] = append(scan.holders[*schema], h)
		}
		return nil
	})
	return err
}
