package sqlitestore

import "context"

// An append that waits while a batch has the connection rides in the transaction of that batch: it is a rider. Riders
// run after all statements of the batch, and one sync of the disk makes everything durable. Each rider has a savepoint,
// and returns after the commit. A rider that fails fails alone. If the shared transaction commits nothing, the batch is
// repeated without riders, and each rider gets a transaction of its own, so none of them bears the fault of another.

const (
	// maxRiders and maxRiderBytes limit by how much the riders of a batch prolong it. With a lower limit, many waiting
	// appends would need a transaction of their own. More than 64 appends take longer than most batches.
	maxRiders     = 64
	maxRiderBytes = 1 << 20
)

// commitWithRiders runs waiting appends as riders, and commits.
func (t *transaction) commitWithRiders(ctx context.Context) error {
	return t.writer.share(ctx, t.Tx, t.takeRiders(), func() error { return t.commit(ctx) })
}

// takeRiders takes waiting appends in their order, within the limits. It takes none while an append waits for a
// transaction of its own, or if a user's function may have changed what the store's statements do on this connection.
func (t *transaction) takeRiders() []*waitingAppend {
	if t.loan.looked {
		return nil
	}
	w := t.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	n, size := 0, 0
	for n < min(len(w.waiting), maxRiders) && !w.waiting[n].alone {
		size += w.waiting[n].size()
		if size > maxRiderBytes {
			break
		}
		n++
	}
	return w.takeFirst(n)
}

// size returns the approximate size of an append's events.
func (a *waitingAppend) size() (size int) {
	for i := range a.Bodies {
		size += len(a.Bodies[i]) + len(a.Headers[i])
	}
	return size
}
