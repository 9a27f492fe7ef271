package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"

	"github.com/millrace-go/millrace/event"
)

// SQLite has one index of the log for all connections of a process. A connection that is opened after another process
// has made a new index still uses the old one.
func TestConnectionsOpenedAfterTheIndexWasReplacedDoNotWrite(t *testing.T) {
	t.Parallel()
	for name, reopened := range map[string]func(t *testing.T, store *Store) *Store{
		"a new connection of the store": func(_ *testing.T, store *Store) *Store { return store },
		"another store": func(t *testing.T, store *Store) *Store {
			t.Helper()
			other, err := Open(testContext(t), store.path, Options{})
			if err != nil {
				return store
			}
			t.Cleanup(other.Close)
			return other
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			mustAppend(t, store.tenant, "s", event.Any, someEvents(3)...)
			all(t, store.tenant) // opens a connection that reads
			noError(t, store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "pragma cache_size = 10") // the connection is not used again
				return err
			}))
			noError(t, errors.Join(os.Remove(store.path+"-shm"), os.WriteFile(store.path+"-shm", nil, 0o600)))
			_, err := reopened(t, store).Append(testContext(t), "s", event.Any, someEvents(1)...)
			if !errors.Is(err, ErrReplaced) {
				t.Errorf("error %v, want ErrReplaced", err)
			}
		})
	}
}

// A new file has no log of the file that had the path before, though this process keeps a connection to that one.
func TestNewFileIsOpenedAfterTheFileBeforeAndItsIndexWereReplaced(t *testing.T) {
	t.Parallel()
	backup := newPath(t)
	filled(t, backup)
	store := newStore(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	for _, suffix := range []string{"-wal", "-shm", queueSuffix} {
		noError(t, os.Remove(store.path+suffix))
	}
	noError(t, errors.Join(os.Rename(backup, store.path), os.WriteFile(store.path+"-shm", nil, 0o600)))
	store.Close()
	if n := len(all(t, openStore(t, store.path, Options{}).tenant)); n != filledWith {
		t.Errorf("%d events, want %d", n, filledWith)
	}
}
