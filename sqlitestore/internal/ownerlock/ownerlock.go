// Package ownerlock decides which of several runtimes owns a store's file. Each requests the lock of a file beside it.
// One runtime gets the lock, and the others stand by. The operating system releases the lock when its process ends,
// however it ends.
//
// The lock is that of an open file, so that two runtimes of one process exclude each other as well. The database file
// itself cannot be used: SQLite has locks of its own there.
package ownerlock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-go/millrace/sqlitestore/internal/filelock"
)

// ErrOwned is returned if another runtime has the lock.
var ErrOwned = errors.New("another runtime owns the file")

// beatInterval is the least time between two changes of the lock file. If it were shorter, an idle machine would write
// to its disk all the time. If it were longer, a frozen owner would be noticed later.
const beatInterval = 10 * time.Second

// Lock is a lock that is held. One goroutine uses it at a time.
type Lock struct {
	file *os.File
	beat time.Time
}

const suffix = "-owner"

// Name returns the name of the lock file of a store's file.
func Name(path string) string { return path + suffix }

// Acquire returns the lock of a store's file, or ErrOwned if another runtime has it.
func Acquire(path string) (*Lock, error) {
	for {
		lock, err := tryOnce(path)
		switch {
		case errors.Is(err, errReplaced):
			continue
		case errors.Is(err, filelock.ErrLocked):
			return nil, fmt.Errorf("%w (%s)", ErrOwned, owner(Name(path)))
		case err != nil:
			return nil, fmt.Errorf("lock %s: %w", Name(path), err)
		}
		return lock, nil
	}
}

// errReplaced is returned if another file has the name of the locked file, or none has it.
var errReplaced = errors.New("replaced")

func tryOnce(path string) (_ *Lock, err error) {
	file, err := filelock.OpenBeside(path, suffix)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	if err := filelock.Lock(file); err != nil {
		return nil, err
	}
	if err := inPlace(file, Name(path)); err != nil {
		return nil, err
	}
	return &Lock{file: file, beat: time.Now()}, note(file)
}

// inPlace returns errReplaced if the file was removed before it was locked: another runtime locks another file then.
func inPlace(file *os.File, name string) error {
	held, err := file.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(held, named) {
		return errReplaced
	}
	return err
}

// note writes the ID of this process to the lock file, for the errors of other processes.
func note(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// owner describes the process that has the lock. While the lock changes hands, the process is unknown.
func owner(name string) string {
	content, err := os.ReadFile(name)
	if pid := strings.TrimSpace(string(content)); err == nil && pid != "" {
		return "process " + pid
	}
	return "unknown process"
}

// Beat records that the holder is alive. It returns an error if the lock file was removed or replaced: another runtime
// may have a lock by the same name.
func (l *Lock) Beat() error {
	err := inPlace(l.file, l.file.Name())
	if errors.Is(err, errReplaced) {
		return fmt.Errorf("%s was removed while it was locked", l.file.Name())
	}
	if now := time.Now(); err == nil && now.Sub(l.beat) >= beatInterval {
		l.beat = now
		err = os.Chtimes(l.file.Name(), now, now)
	}
	return err
}

// State is what a lock file shows.
type State struct {
	// Held reports whether a runtime has the lock.
	Held bool
	// Beat is when the holder, or the last one if there is none, was last seen alive. It is accurate to beatInterval.
	Beat time.Time
}

// Inspect returns the state of the lock of a store's file. For an instant it may keep others from acquiring the lock.
func Inspect(path string) (State, error) {
	file, err := os.Open(Name(path))
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return State{}, err
	}
	held, err := isHeld(file)
	if err != nil {
		return State{}, fmt.Errorf("inspect %s: %w", Name(path), err)
	}
	return State{Held: held, Beat: info.ModTime()}, nil
}

// isHeld reports whether a runtime has the lock. Otherwise it shares the lock for an instant.
func isHeld(file *os.File) (bool, error) {
	err := filelock.Share(file)
	switch {
	case errors.Is(err, filelock.ErrLocked):
		return true, nil
	case err != nil:
		return false, err
	}
	return false, filelock.Unlock(file)
}

// Release releases the lock. The file stays. If it was removed, a runtime that has opened it would not exclude a
// runtime that creates it again.
func (l *Lock) Release() error {
	// A process that is being started also has the file open for an instant, so closing the file here would not be
	// enough.
	return errors.Join(filelock.Unlock(l.file), l.file.Close())
}
