package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/millrace-go/millrace/sqlitestore/internal/filelock"
)

const (
	// queuePause is the pause between two attempts to enter the queue.
	queuePause = time.Millisecond
	// queueTime is how long a process waits for the lock of the queue. A process that has the lock for longer is
	// frozen, or waits for a long transaction.
	queueTime = 100 * time.Millisecond
)

// queueSuffix is the suffix of the lock file of the queue, beside the store's file.
const queueSuffix = "-queue"

// fileQueue makes the processes that write to a file take turns. SQLite's lock has no queue: a process that runs
// transactions without a pause gets the lock again before another process looks for it. So each process takes the lock
// of the queue first, and holds it while it waits for SQLite's lock. A process that has ended a transaction cannot take
// the lock of the queue until the waiting process has begun. In each process only the holder of the writer's turn uses
// the queue.
type fileQueue struct {
	file *os.File
	// stuck reports whether the last wait took too long. Then transactions do not wait in the queue until its lock is
	// free again.
	stuck bool
}

// openQueue opens the lock file of the queue of a store's file.
func openQueue(path string) (*fileQueue, error) {
	file, err := filelock.OpenBeside(path, queueSuffix)
	return &fileQueue{file: file}, err
}

// enter waits until no other process waits for SQLite's lock. leave must follow as soon as the transaction has begun.
func (q *fileQueue) enter(ctx context.Context) (leave func(), err error) {
	var limit <-chan time.Time
	for {
		err := filelock.Lock(q.file)
		switch {
		case err == nil:
			q.stuck = false
			return q.leave, nil
		case !errors.Is(err, filelock.ErrLocked):
			return nil, fmt.Errorf("lock %s: %w", q.file.Name(), err)
		case q.stuck:
			return func() {}, nil
		case limit == nil:
			limit = time.After(queueTime)
		}
		select {
		case <-time.After(queuePause):
		case <-limit:
			q.stuck = true
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (q *fileQueue) leave() { _ = filelock.Unlock(q.file) }

// close also removes the mark of markQueue.
func (q *fileQueue) close() error { return errors.Join(filelock.Unmark(q.file), q.file.Close()) }
