package sqlitestore

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/sqlitestore/internal/filelock"
)

// TestAppendOfAnotherProcessWaitsForFewTransactions appends through another store, as another process does, while one
// appends without a pause.
func TestAppendOfAnotherProcessWaitsForFewTransactions(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(testContext(t))
	path := newPath(t)
	busy := migrated(t, openStore(t, path, Options{Synchronous: SynchronousNormal}))
	other := openStore(t, path, Options{})
	var ended atomic.Int64
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			_, err := busy.Append(ctx, "busy", event.Any, someEvents(100)...)
			if err != nil && ctx.Err() == nil {
				done <- err
				return
			}
			ended.Add(1)
		}
		done <- nil
	}()
	waits := make([]int64, 51)
	for i := range waits {
		// Others are in the middle of their transactions.
		for next := ended.Load() + 5; ended.Load() < next && ctx.Err() == nil; {
			runtime.Gosched()
		}
		before := ended.Load()
		mustAppend(t, other.tenant, "s", event.Any, someEvents(1)...)
		waits[i] = ended.Load() - before
	}
	cancel()
	noError(t, <-done)
	// One transaction is open when the append begins, and others may end before it is counted.
	slices.Sort(waits)
	if waits[len(waits)/2] > 2 {
		t.Errorf("half of the appends waited for at least %d transactions", waits[len(waits)/2])
	}
}

// TestFrozenProcessInTheQueueStopsNoOther holds the lock of the queue, as a process does that was stopped while it
// waited.
func TestFrozenProcessInTheQueueStopsNoOther(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	store := migrated(t, openStore(t, path, Options{}))
	frozen := must(os.OpenFile(path+"-queue", os.O_RDWR, 0))(t)
	defer func() { _ = frozen.Close() }()
	noError(t, filelock.Lock(frozen))
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	if !store.writer.queue.stuck {
		t.Error("the append did not wait in the queue")
	}
	noError(t, filelock.Unlock(frozen))
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	if store.writer.queue.stuck {
		t.Error("the queue is still stuck")
	}
	// A canceled append leaves the queue.
	store.writer.queue.stuck = false
	noError(t, filelock.Lock(frozen))
	canceled, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, err := store.Append(canceled, "s", event.Any, someEvents(1)...); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	noError(t, filelock.Unlock(frozen))
}
