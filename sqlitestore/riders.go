package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace-go/millrace/event"
)

// An append that waits while a batch has the connection rides in the transaction of that batch: it is a rider. Riders run
// after all statements of the batch, and one sync of the disk makes everything durable. Each rider has a savepoint, and
// returns after the commit. A rider that fails fails alone. If the batch fails, its riders wait again for another transaction.

const (
	// maxRiders and maxRiderBytes limit by how much the riders of a batch prolong it. With a lower limit, many waiting appends
	// would need a transaction of their own. More than 64 appends take longer than most batches.
	maxRiders     = 64
	maxRiderBytes = 1 << 20
)

// commitWithRiders runs waiting appends as riders, and commits.
func (t *transaction) commitWithRiders(ctx context.Context) error {
	riders := t.takeRiders()
	for _, a := range riders {
		if err := inSavepoint(ctx, t.Tx, a); err != nil {
			// The rider ended the transaction, which is no fault of the batch. The next batch has none.
			t.writer.putBack(riders, true)
			return finishFault(fmt.Errorf("append while the batch commits: %w", err))
		}
	}
	err := t.commit(ctx)
	if is(err, sqlite3.SQLITE_CONSTRAINT) || errors.Is(err, ErrTxControl) {
		// Nothing was committed, because of what the user's function did.
		t.writer.putBack(riders, false)
	} else {
		answer(riders, err)
	}
	return err
}

// takeRiders takes waiting appends in their order, within the limits. It takes none if a user's function may have changed what
// the store's statements do on this connection, for instance with a temporary table.
func (t *transaction) takeRiders() []*waitingAppend {
	if t.loan.looked {
		return nil
	}
	w := t.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.noRiders {
		w.noRiders = false
		return nil
	}
	n, size := 0, 0
	for n < min(len(w.waiting), maxRiders) {
		if size += w.waiting[n].size(); size > maxRiderBytes {
			break
		}
		n++
	}
	riders := w.waiting[:n:n]
	w.waiting = w.waiting[n:]
	w.countWaits(riders)
	return riders
}

// putBack lets riders wait again, before later appends. If noRiders is true, the next batch takes no riders.
func (w *writer) putBack(riders []*waitingAppend, noRiders bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noRiders = noRiders
	for _, a := range riders {
		a.result, a.err, a.since = event.Appended{}, nil, time.Now()
	}
	w.waiting = append(riders[:len(riders):len(riders)], w.waiting...)
	for _, a := range riders {
		select {
		case a.back <- struct{}{}:
		default:
		}
	}
}

// size returns the approximate size of an append's events.
func (a *waitingAppend) size() (size int) {
	for i := range a.Bodies {
		size += len(a.Bodies[i]) + len(a.Headers[i])
	}
	return size
}
