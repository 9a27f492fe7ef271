package sqlitestore

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	sqlite3 "modernc.org/sqlite/lib"
)

// After a failed sync, the system considers the data written. It does not write the data again, and a later sync
// succeeds without it. So a commit whose sync failed must not stay in the write-ahead log. Otherwise a process that
// opens the file reads that commit, and commits after it. A power loss then undoes both. While the file is open, the
// next commit overwrites the failed one. For a process that opens the file later, the store leaves a mark, and the next
// transaction writes the log again.

// resyncMark is the suffix of an empty file beside the store's file. While it exists, the log must be written again
// before the next commit.
const resyncMark = "-resync"

// commit commits a transaction of the store.
func (w *writer) commit(tx *sql.Tx) error {
	if err := afterCommit(w.at.path, tx.Commit()); err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	return nil
}

// afterCommit leaves the mark if a commit failed with an error of the disk. It returns the error.
func afterCommit(path string, err error) error {
	if is(err, sqlite3.SQLITE_IOERR) {
		return errors.Join(err, os.WriteFile(path+resyncMark, nil, 0o600))
	}
	return err
}

// resync writes the log again if the mark exists, and removes the mark. The caller has begun a transaction that writes,
// so nothing else writes to the log.
func resync(path string) error {
	if _, err := os.Lstat(path + resyncMark); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := rewrite(path + "-wal"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write the log %s-wal again, whose sync failed before: %w", path, err)
	}
	return os.Remove(path + resyncMark)
}

// rewrittenFile is a file that can be written in place. Tests replace openRewritten, to record what is written.
type rewrittenFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error
}

var openRewritten = func(path string) (rewrittenFile, error) { return os.OpenFile(path, os.O_RDWR, 0) }

// rewrite writes the content of a file over itself, and syncs it.
func rewrite(path string) (err error) {
	file, err := openRewritten(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buffer := make([]byte, 1<<20)
	for at := int64(0); ; {
		n, err := file.ReadAt(buffer, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			return file.Sync()
		}
		if _, err := file.WriteAt(buffer[:n], at); err != nil {
			return err
		}
		at += int64(n)
	}
}
