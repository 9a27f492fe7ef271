package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"

	"github.com/millrace-go/millrace/sqlitestore/internal/filelock"
)

var (
	// ErrSeveralNames is returned if the file may be used by two names. SQLite keeps the write-ahead log beside the
	// name by which a file is opened, so two names have two logs, and the file is damaged. These are hard links, a
	// mount of the file alone, and a file that was renamed while a process had it open. Symbolic links are no further
	// names.
	ErrSeveralNames = errors.New("the file may be used by several names")
	// ErrReplaced is returned by all calls that write, after the file, its write-ahead log (-wal) or the log's index
	// (-shm) was removed, renamed or replaced. Nothing was written. To restore a backup, first stop all processes that
	// have the file open.
	ErrReplaced = errors.New("the file was removed or replaced while it was open")
)

// location is a path, and the file that had it when the store was opened.
type location struct {
	path string
	file fs.FileInfo
	// handle marks the file as used by this path. It is nil if closing it could release locks of SQLite.
	handle *os.File
}

// oneName returns an error if the file is no regular file, or may be used by another name. It opens nothing.
func oneName(path string, opts Options) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s: %w: it is a folder", path, ErrForeignFile)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w: it is no regular file", path, ErrForeignFile)
	}
	links, err := hardLinks(path, info)
	if err != nil {
		return fmt.Errorf("count the hard links of %s: %w", path, err)
	}
	if links > 1 && !opts.AllowHardLinks {
		return fmt.Errorf("%s: %w: it has %d hard links; copy it to a new file, or read about Options.AllowHardLinks",
			path, ErrSeveralNames, links)
	}
	mount, err := isMount(path)
	if err == nil && mount {
		return fmt.Errorf("%s: %w: it is mounted alone; mount its folder, in which its log is", path, ErrSeveralNames)
	}
	return err
}

// openLocation opens the file and marks it, before SQLite uses it. It creates the file if it does not exist.
func openLocation(path string) (*location, error) {
	p := &location{path: path}
	if err := checkIndex(path); err != nil {
		return nil, err
	}
	if !sqlite.OFDLockingEnabled() {
		return p, nil
	}
	// SQLite creates files with the same permissions.
	handle, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	p.handle = handle
	if err := p.mark(); err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	return p, nil
}

// mark marks the file with the name by which its log is found.
func (p *location) mark() (err error) {
	p.file, err = p.handle.Stat()
	if err != nil {
		return err
	}
	folder, err := os.Stat(filepath.Dir(p.path))
	if err != nil {
		return err
	}
	// Some file systems do not distinguish case.
	err = filelock.Mark(p.handle, identity(folder)+" "+strings.ToLower(filepath.Base(p.path)))
	if errors.Is(err, filelock.ErrLocked) {
		return fmt.Errorf("%s: %w: a process has opened it by another name; end that process first", p.path,
			ErrSeveralNames)
	}
	return errors.Join(err, p.tryQueue())
}

// tryQueue is markQueue for a moment, before anything is created beside the file.
func (p *location) tryQueue() error {
	queue, err := os.OpenFile(p.path+queueSuffix, os.O_RDWR, 0)
	if err != nil {
		return nil // openQueue creates it, or says why not
	}
	return errors.Join(p.markQueue(queue), filelock.Unmark(queue), queue.Close())
}

// markQueue marks the file of the queue with the store's file. Together the two marks allow one log for each file, and
// one file for each log.
func (p *location) markQueue(queue *os.File) error {
	if p.handle == nil {
		return nil
	}
	err := filelock.Mark(queue, identity(p.file))
	if errors.Is(err, filelock.ErrLocked) {
		return fmt.Errorf("%s: %w: a process uses the previous file, and the log beside it; end that process first",
			p.path, ErrReplaced)
	}
	return err
}

// opened is called when SQLite has opened the file, and perhaps created it.
func (p *location) opened() (err error) {
	if p.handle == nil {
		p.file, err = os.Stat(p.path)
		return err
	}
	return p.check()
}

// check returns ErrReplaced if another file has the path by now. It returns nil until it is known which file SQLite has
// opened.
func (p *location) check() error {
	if p == nil || p.file == nil {
		return nil
	}
	return unchanged(p.path, p.file)
}

// unchanged returns ErrReplaced if another file has the path by now.
func unchanged(path string, file fs.FileInfo) error {
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(file, now) {
		return fmt.Errorf("%s: %w", path, ErrReplaced)
	}
	return err
}

// logSuffixes are those of the write-ahead log and its index. SQLite keeps both while a connection is open.
var logSuffixes = [...]string{"-wal", "-shm"}

// indexFile is the place of the index among them.
const indexFile = 1

// logFiles are the write-ahead log and its index. A file that does not exist is nil.
type logFiles [len(logSuffixes)]fs.FileInfo

// log returns the files of the log that the path has now.
func (p *location) log() (log logFiles) {
	for i, suffix := range logSuffixes {
		log[i], _ = os.Stat(p.path + suffix)
	}
	return log
}

// checkLog returns ErrReplaced if the files that a connection has opened as its log are no longer beside the file.
// Another process would not see what the connection writes, and would overwrite it.
func (p *location) checkLog(opened logFiles) error {
	for i, suffix := range logSuffixes {
		if err := unchanged(p.path+suffix, opened[i]); err != nil {
			return err
		}
	}
	return nil
}

// close closes the handle. SQLite has closed the file.
func (p *location) close() error {
	if p.handle == nil {
		return nil
	}
	return errors.Join(filelock.Unmark(p.handle), p.handle.Close())
}
