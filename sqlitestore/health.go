package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millrace-go/millrace/internal/engine"
)

// probeBytes is the size of the file that a probe writes. A commit would succeed on a full disk while the write-ahead
// log has room.
const probeBytes = 512 << 10

// health implements engine.Health: it examines whether the database works.
type health struct{ *database }

var _ engine.Health = health{}

// Probe implements engine.Health. It writes to the file over a connection of its own, and to another file in its
// folder. A transaction in progress is no error: the file can be written to.
func (h health) Probe(ctx context.Context) error {
	if err := h.probeSpace(); err != nil {
		return fmt.Errorf("probe the file: %w", storeFault(err))
	}
	if err := h.probeWrite(ctx); err != nil && !is(err, sqlite3.SQLITE_BUSY) {
		return fmt.Errorf("probe the file: %w", storeFault(err))
	}
	return nil
}

func (h health) probeSpace() (err error) {
	file, err := os.CreateTemp(filepath.Dir(h.path), filepath.Base(h.path)+"-probe-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	_, err = file.Write(make([]byte, probeBytes))
	return err
}

func (h health) probeWrite(ctx context.Context) (err error) {
	db, err := openDB(dsn(h.path, "_txlock=immediate", "mode=rw"), h.writer.at, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	if err := execute(ctx, tx, "probe_write"); err != nil {
		return err
	}
	return afterCommit(h.path, tx.Commit())
}

func (h health) Ping(ctx context.Context) error {
	if _, err := number(ctx, h.readers, "user_version"); err != nil {
		return fmt.Errorf("ping: %w", storeFault(err))
	}
	return nil
}

// SchemaVersions implements engine.Health. All tenants have the tables of the file.
func (h health) SchemaVersions(ctx context.Context) (engine.SchemaVersions, error) {
	version, err := schemaVersion(ctx, h.readers)
	return engine.SchemaVersions{Found: int(version), Newest: len(ownMigrations)},
		wrap(err, "compare the versions of the schema")
}

// Runnable implements engine.Health. It returns ErrMoved for a file that was moved.
func (h health) Runnable(ctx context.Context) error {
	return wrap(h.notMoved(ctx), "examine whether the file was moved")
}
