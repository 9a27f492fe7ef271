package pgstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// startTimeout limits the read of one slice of starting tails. The server may have to load the tables of all its
// tenants.
const startTimeout = 30 * time.Second

// tailStart is where a tail begins: the highest position that a projection has handled, and the highest visible one.
type tailStart struct {
	floor, head int64
	in          engine.Incarnation
}

// tailStarts finds where tails begin, those of up to headsSlice tenants by one statement. A runtime starts the tails of
// thousands of tenants at once, and a statement for each would take a minute. One slice is read at a time, and tails
// that start meanwhile wait for the next. So a single connection reads the tables of all tenants.
type tailStarts struct {
	reads *eventReads
	// open ends when the store is closed.
	open  context.Context
	end   context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex
	waiting []*startWait
	running bool
}

// startWait is a tail that waits for its start. done is closed when the slice of the tail was read: then start and
// found are set, or err. ended is closed when the tail has started. The next slice is read after that if the tail was
// alone in its slice.
type startWait struct {
	tenant string
	done   chan struct{}
	ended  chan struct{}
	start  tailStart
	found  bool
	err    error
}

func newTailStarts(r *eventReads) *tailStarts {
	open, end := context.WithCancel(context.Background())
	return &tailStarts{reads: r, open: open, end: end}
}

// of returns where the tail of a tenant begins. It calls alone if no other tail starts meanwhile, or if this tenant
// cannot be read: alone then shows why. The statement begins after the call.
func (ts *tailStarts) of(ctx context.Context, tenant string, alone func() (tailStart, error)) (tailStart, error) {
	w := ts.join(tenant)
	if w == nil {
		return tailStart{}, fmt.Errorf("start to read events: %w", errClosed)
	}
	defer close(w.ended)
	select {
	case <-w.done:
		if w.found || w.err != nil {
			return w.start, w.err
		}
		return alone()
	case <-ctx.Done():
		ts.leave(w)
		return tailStart{}, ctx.Err()
	}
}

// join adds a tail to those that wait. It returns nil if the store is closed.
func (ts *tailStarts) join(tenant string) *startWait {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.open.Err() != nil {
		return nil
	}
	w := &startWait{tenant: tenant, done: make(chan struct{}), ended: make(chan struct{})}
	ts.waiting = append(ts.waiting, w)
	if !ts.running {
		ts.running = true
		ts.ended.Go(ts.run)
	}
	return w
}

func (ts *tailStarts) leave(w *startWait) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.waiting = slices.DeleteFunc(ts.waiting, func(o *startWait) bool { return o == w })
}

// run reads slices until no tail waits.
func (ts *tailStarts) run() {
	for slice := ts.next(); len(slice) > 0; slice = ts.next() {
		if len(slice) > 1 {
			ctx, cancel := context.WithTimeout(ts.open, startTimeout)
			ts.read(ctx, slice)
			cancel()
		}
		for _, w := range slice {
			close(w.done)
		}
		if len(slice) == 1 {
			<-slice[0].ended
		}
	}
}

// next takes the next slice. If there is none, it ends running.
func (ts *tailStarts) next() []*startWait {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	n := min(headsSlice, len(ts.waiting))
	slice := slices.Clone(ts.waiting[:n])
	ts.waiting = slices.Delete(ts.waiting, 0, n)
	ts.running = n > 0
	return slice
}

// read finds the starts of a slice of tails. An error is not that of one tenant, so all of them have it.
func (ts *tailStarts) read(ctx context.Context, slice []*startWait) {
	tenants := make([]string, len(slice))
	for i, w := range slice {
		tenants[i] = w.tenant
	}
	slices.Sort(tenants)
	tenants = slices.Compact(tenants)
	found := make(map[string]tailStart, len(tenants))
	err := ts.reads.eachReadable(ctx, tenants, make(map[string]error),
		func(ctx context.Context, tenants []string) error {
			return ts.readSlice(ctx, tenants, found)
		})
	for _, w := range slice {
		w.start, w.found = found[w.tenant]
		w.err = err
	}
}

func (ts *tailStarts) readSlice(ctx context.Context, tenants []string, found map[string]tailStart) error {
	statement, err := ts.reads.tailStartsStatement(tenants)
	if err != nil {
		return err
	}
	floors, positions := make([]int64, len(tenants)), make([]int64, len(tenants))
	in, err := ts.reads.readEvents(ctx, statement, [][]byte{wire.TextArray(tenants)}, nil,
		func(rows *pgconn.ResultReader) error {
			return wire.ReadInts(rows, func(row []int64) {
				if place := row[0]; place < 0 {
					floors[-place-1] = row[1]
				} else {
					positions[place] = row[1]
				}
			})
		})
	if err != nil {
		return fmt.Errorf("find where the tails of %d tenants begin: %w", len(tenants), err)
	}
	for i, tenant := range tenants {
		found[tenant] = tailStart{floor: floors[i], head: positions[i], in: in}
	}
	return nil
}

// tailStartsStatement returns the statement that finds where the tails of these tenants begin. Its argument is the list
// of them.
func (r *eventReads) tailStartsStatement(tenants []string) (string, error) {
	heads, err := r.headsStatement(tenants)
	return r.control.sql("tail_starts") + " union all " + heads, err
}

// close ends a read in progress and waits for it.
func (ts *tailStarts) close() {
	ts.mu.Lock()
	ts.end()
	ts.mu.Unlock()
	ts.ended.Wait()
}
