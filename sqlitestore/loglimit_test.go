package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
)

// beginRead begins a read, which keeps the log until it ends.
func beginRead(ctx context.Context, store *Store) (*sql.Tx, error) {
	tx, err := store.readers.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	_, err = number(ctx, tx, "schema_version")
	return tx, err
}

// overlap reads until done is closed. Each read begins before the last one ends.
func overlap(ctx context.Context, store *Store, done chan struct{}) error {
	read, err := beginRead(ctx, store)
	for err == nil {
		select {
		case <-done:
			return read.Rollback()
		case <-time.After(time.Millisecond):
		}
		last := read
		read, err = beginRead(ctx, store)
		err = errors.Join(err, last.Rollback())
	}
	return err
}

// appendMiB appends 1 MiB, and returns the size of the log in MiB.
func appendMiB(t *testing.T, store *Store) float64 {
	t.Helper()
	body := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, 1<<20)...), '"')
	mustAppend(t, store.tenant, "s", event.Any, event.Event{Type: "T", Body: body})
	return float64(must(os.Stat(store.path+"-wal"))(t).Size()) / (1 << 20)
}

// The writer empties the log, since SQLite begins it anew only while no connection reads from it.
func TestLogStaysSmallWhileReadsOverlap(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	store.writer.logLimit = 4 << 20
	ctx := testContext(t)
	done, ended := make(chan struct{}), make(chan error)
	go func() { ended <- overlap(ctx, store, done) }()
	largest := 0.0
	for range 24 {
		largest = max(largest, appendMiB(t, store))
	}
	close(done)
	noError(t, <-ended)
	if largest > 12 { // SQLite does not begin the log anew before 16 MiB
		t.Errorf("the log grew to %.1f MiB with a limit of 4 MiB", largest)
	}
}

// A read that takes long delays writers for a moment only, and the log is small again after it.
func TestLogShrinksAfterALongRead(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	read, err := beginRead(testContext(t), store)
	noError(t, err)
	for appendMiB(t, store) < 1+logLimit>>20 {
	}
	noError(t, read.Rollback())
	for range 3 { // the first one moves the log into the file, and the next one begins it anew
		appendMiB(t, store)
	}
	if size := appendMiB(t, store); size > logLimit>>20 {
		t.Errorf("the log has %.1f MiB", size)
	}
}
