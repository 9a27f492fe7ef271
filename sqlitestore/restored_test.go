package sqlitestore

import (
	"database/sql/driver"
	"errors"
	"testing"

	"modernc.org/sqlite"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// onFile calls fn with a connection of another program.
func onFile(t *testing.T, path string, fn func(c *conn) error) {
	t.Helper()
	db := must(openDB(dsn(path, "_pragma=busy_timeout(10000)"), nil, false))(t)
	session := must(db.Conn(testContext(t)))(t)
	err := session.Raw(func(driverConn any) error { return fn(driverConn.(*conn)) })
	noError(t, errors.Join(err, session.Close(), db.Close()))
}

// restore copies a backup into a file that is open, as ".restore" of the program sqlite3 does.
func restore(t *testing.T, path, backup string) {
	t.Helper()
	onFile(t, path, func(c *conn) error {
		into, err := c.driverConn.(interface {
			NewRestore(source string) (*sqlite.Backup, error)
		}).NewRestore(dsn(backup))
		if err != nil {
			return err
		}
		_, err = into.Step(-1)
		return errors.Join(err, into.Finish())
	})
}

// restoredBelow returns a projection whose events up to 20 were settled, in a file that was then restored to 10 events.
func restoredBelow(t *testing.T) *batcher {
	t.Helper()
	b := newBatcher(t, 10)
	backup := newPath(t)
	onFile(t, b.store.path, func(c *conn) error {
		_, err := c.ExecContext(testContext(t), "vacuum into ?", []driver.NamedValue{{Ordinal: 1, Value: backup}})
		return err
	})
	mustAppend(t, b.store.tenant, "s", event.Any, someEvents(10)...)
	restore(t, b.store.path, backup)
	return b
}

func TestReadDoesNotPassTheEndOfARestoredFile(t *testing.T) {
	t.Parallel()
	b := restoredBelow(t)
	page, err := b.store.port().Read(testContext(t), projection.DefaultTenant, engine.ReadRange{UpTo: 20, Limit: 100})
	if !errors.Is(err, event.ErrIncarnationChanged) {
		t.Errorf("%d events up to %d, error %v", len(page.Events), page.To, err)
	}
	if n := len(b.pending(100).Events); n != 10 {
		t.Errorf("%d events up to the end, want 10", n)
	}
}

func TestCheckpointDoesNotPassTheEndOfARestoredFile(t *testing.T) {
	t.Parallel()
	b := restoredBelow(t)
	err := b.run(testContext(t), engine.Batch{To: 20}, record, limit)
	if !errors.Is(err, projection.ErrLeaseLost) {
		t.Errorf("batch: %v", err)
	}
	moved, err := b.store.port().Advance(testContext(t), []engine.Advance{{Lease: b.lease, To: 20}})
	if err != nil || len(moved) != 0 {
		t.Errorf("moved %v, error %v", moved, err)
	}
	b.holds(0, 0)
}
