package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	sqlite3 "modernc.org/sqlite/lib"
)

// probeBytes is the size of the file that a probe writes. A commit would succeed on a full disk while the write-ahead
// log has room.
const probeBytes = 512 << 10

// Probe implements engine.Health. It writes to the file over a connection of its own, and to another file in its
// folder. A transaction in progress is no error: the file can be written to.
func (s port) Probe(ctx context.Context) error {
	err := s.probe(ctx)
	if err != nil && !is(err, sqlite3.SQLITE_BUSY) {
		return fmt.Errorf("probe the file: %w", storeFault(err))
	}
	return nil
}

func (s port) probe(ctx context.Context) error {
	if err := s.probeSpace(); err != nil {
		return err
	}
	return s.probeWrite(ctx)
}

func (s port) probeSpace() (err error) {
	file, err := os.CreateTemp(filepath.Dir(s.path), filepath.Base(s.path)+"-probe-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	_, err = file.Write(make([]byte, probeBytes))
	return err
}

func (s port) probeWrite(ctx context.Context) (err error) {
	db, err := openDB(dsn(s.path, "_txlock=immediate", "mode=rw"), s.writer.at, false)
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
	return afterCommit(s.path, tx.Commit())
}
