package sqlitestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var (
	// ErrForeignFile is returned if the file is not a store of this library: it is the database of another program, or
	// not a database.
	ErrForeignFile = errors.New("the file exists and is not a store of millrace")
	// ErrCorrupt is returned if the file is damaged. Move it and all files beside it away, and restore it from a
	// backup.
	ErrCorrupt = errors.New("the file is damaged")
	// ErrNetworkFile is returned if the file is on a network file system, whose locks and shared memory are not
	// reliable. Not all network file systems are recognised.
	ErrNetworkFile = errors.New("the file is on a network file system")
)

// applicationID marks the files of this library in their header.
const applicationID = 0x4D696C6C // "Mill"

// shortestFile is the size of the smallest page of a database, in bytes.
const shortestFile = 512

// local returns an error if the folder of the file does not exist or is on a network file system.
func local(path string, networkFile func(folder string) (string, error)) error {
	folder := filepath.Dir(path)
	if info, err := os.Stat(folder); err != nil {
		return fmt.Errorf("the file's folder: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("the file's folder is no folder: %s", folder)
	}
	kind, err := networkFile(folder)
	if err != nil {
		return fmt.Errorf("find the file system of %s: %w", folder, err)
	}
	if kind != "" {
		return fmt.Errorf("%s (%s): %w", path, kind, ErrNetworkFile)
	}
	return nil
}

// lockByDescription turns on locks that other handles of the process do not release when they close the file. If the
// process has used SQLite before, or the system has no such locks, those of POSIX remain.
func lockByDescription() {
	_, _ = sqlite.OFDLocking(true)
}

// looks is how often a file is examined until an error is believed, and lookEvery the time between.
const (
	looks     = 3
	lookEvery = 10 * time.Millisecond
)

// examine returns an error if the file exists and is not a store. It writes nothing. Another process may create the
// store, or begin to write to it, between two steps of an examination, so an error is believed if it comes again.
func examine(ctx context.Context, path string) (err error) {
	for look := 1; ; look++ {
		err = examineOnce(ctx, path)
		if err == nil || look == looks {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(lookEvery):
		}
	}
}

func examineOnce(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Size() == 0 && nonempty(path+"-wal") && !nonempty(path+"-journal"):
		// SQLite would delete the log.
		return fmt.Errorf("%s: %w: it is empty, and has a write-ahead log", path, ErrCorrupt)
	case info.Size() == 0:
		return nil
	case info.Size() < shortestFile:
		// SQLite would take the file for empty.
		return fmt.Errorf("%s: %w: it has %d bytes", path, ErrForeignFile, info.Size())
	}
	err = examineDatabase(ctx, path)
	if is(err, sqlite3.SQLITE_NOTADB) {
		err = fmt.Errorf("%w: %w", ErrForeignFile, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, damaged(err))
	}
	return nil
}

// examineDatabase reads the header of a file and its list of tables. Without a log it takes no locks, since SQLite
// would create files for them.
func examineDatabase(ctx context.Context, path string) error {
	if hasLog(path) {
		return examineWithLog(ctx, path)
	}
	return examineWith(ctx, path, "immutable=1")
}

// hasLog reports whether the file has a write-ahead log or a rollback journal that is not empty.
func hasLog(path string) bool { return nonempty(path+"-wal") || nonempty(path+"-journal") }

func nonempty(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

// examineWithLog examines a file together with its logs. If a power loss interrupted the transaction that created the
// file, it is empty: the connection that writes rolls that transaction back.
func examineWithLog(ctx context.Context, path string) error {
	err := examineWith(ctx, path, "mode=ro")
	var failed *sqlite.Error
	if !errors.As(err, &failed) || failed.Code() != sqlite3.SQLITE_READONLY_ROLLBACK {
		return err
	}
	pages, err := pagesBefore(path + "-journal")
	if err != nil || pages == 0 {
		return err
	}
	return examineWith(ctx, path, "immutable=1")
}

// pagesBefore returns the number of pages that the file had before the transaction of a rollback journal. It stands in
// the journal's header, see https://sqlite.org/fileformat.html#the_rollback_journal.
func pagesBefore(journal string) (uint32, error) {
	file, err := os.Open(journal)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	var pages [4]byte
	if _, err := file.ReadAt(pages[:], 16); err != nil {
		return 0, fmt.Errorf("read the header of %s: %w", journal, err)
	}
	return binary.BigEndian.Uint32(pages[:]), nil
}

// rollBack rolls back the transaction that a power loss interrupted while there was no write-ahead log yet, with a
// connection of its own. SQLite reads the header of a file before it rolls back, and creates a file anew with what that
// header said. A power loss can leave anything in it.
func rollBack(ctx context.Context, path string) error {
	if !nonempty(path + "-journal") {
		return nil
	}
	return examineWith(ctx, path, "mode=rwc")
}

func examineWith(ctx context.Context, path, mode string) (err error) {
	db, err := openDB(dsn(path, mode, "_pragma=busy_timeout(10000)"), nil, false)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, db.Close()) }()
	// In one transaction the header fits the tables although another process may create them now.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var fields [3]int64
	for i, statement := range []string{"application_id", "count_objects", "user_version"} {
		fields[i], err = number(ctx, tx, statement)
		if err != nil {
			return err
		}
	}
	// An empty database does not belong to any program yet.
	if id := fields[0]; id != applicationID && fields != [3]int64{} {
		return fmt.Errorf("%w: its application id is %#x, not %#x", ErrForeignFile, id, applicationID)
	}
	return errors.Join(checkVersion(fields[2]), foreignObjects(ctx, tx, "foreign_objects"))
}

// number returns the result of a statement that returns one number.
func number(ctx context.Context, db querier, statement string) (n int64, err error) {
	err = db.QueryRowContext(ctx, queries.Text(statement)).Scan(&n)
	return n, err
}

// dsn returns the driver's name of the file, with parameters.
func dsn(path string, parameters ...string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	// Bytes that are not printed in a URL are escaped, also % and ?.
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + strings.Join(append(parameters,
		"_defensive=1", "_error_rc=1", "_time_format=sqlite", "_pragma=cell_size_check(1)"), "&")
}

// is reports whether err comes from SQLite with one of these primary result codes.
func is(err error, codes ...int) bool {
	var failed *sqlite.Error
	if !errors.As(err, &failed) {
		return false
	}
	for _, code := range codes {
		if failed.Code()&0xff == code {
			return true
		}
	}
	return false
}

// damaged adds ErrCorrupt and the file's name to an error that reports damage. It returns other errors as damaged does.
func (db *database) damaged(err error) error {
	err = damaged(err)
	if errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%s: %w", db.path, err)
	}
	return err
}

// damaged adds ErrCorrupt to an error by which SQLite reports damage, ErrMoved to one about a file that was moved, and
// ErrReplaced to one about a log that is shorter than its index says. Other errors are returned unchanged.
func damaged(err error) error {
	var failed *sqlite.Error
	if errors.As(err, &failed) && failed.Code() == sqlite3.SQLITE_IOERR_SHORT_READ && !errors.Is(err, ErrReplaced) {
		return fmt.Errorf("%w: its write-ahead log was removed or cut off: %w", ErrReplaced, err)
	}
	if is(err, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) && !errors.Is(err, ErrForeignFile) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return moved(err)
}
