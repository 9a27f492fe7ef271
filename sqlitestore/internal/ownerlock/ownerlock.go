// Package ownerlock decides which of several runtimes owns a store's file. Each asks for the lock of a file beside it. One
// gets it, and the others stand by. The operating system releases the lock when its process ends, however it ends.
//
// The lock is that of an open file, so that two runtimes of one process exclude each other as well. The database file itself
// cannot be used: SQLite has locks of its own there.
package ownerlock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// retryInterval is how often the lock is asked for while another runtime has it. Projections stand still for that long
// after its process ended.
const retryInterval = 50 * time.Millisecond

// ErrOwned is returned if another runtime has the lock.
var ErrOwned = errors.New("another runtime owns the file")

// errLocked is returned by lock if another open file has the lock.
var errLocked = errors.New("locked")

// Lock is a lock that is held.
type Lock struct{ file *os.File }

// Name returns the name of the lock file of a store's file.
func Name(path string) string { return path + "-owner" }

// Acquire waits until it has the lock of a store's file, or ctx ends. The error then has ErrOwned, and the process that has
// the lock.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	for {
		lock, err := TryAcquire(path)
		if !errors.Is(err, ErrOwned) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(retryInterval):
		}
	}
}

// TryAcquire returns the lock of a store's file, or ErrOwned if another runtime has it.
func TryAcquire(path string) (*Lock, error) {
	for {
		lock, err := tryOnce(Name(path))
		switch {
		case errors.Is(err, errReplaced):
			continue
		case errors.Is(err, errLocked):
			return nil, fmt.Errorf("%w (%s)", ErrOwned, owner(Name(path)))
		case err != nil:
			return nil, fmt.Errorf("lock %s: %w", Name(path), err)
		}
		return lock, nil
	}
}

// errReplaced is returned if the file that was locked does not have its name any more.
var errReplaced = errors.New("replaced")

func tryOnce(name string) (_ *Lock, err error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	if err := lock(file); err != nil {
		return nil, err
	}
	if err := inPlace(file, name); err != nil {
		return nil, err
	}
	return &Lock{file}, note(file)
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

// note writes who has the lock, for the errors of others.
func note(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// owner describes who has the lock. It is not known in the moment in which it changes.
func owner(name string) string {
	content, err := os.ReadFile(name)
	if pid := strings.TrimSpace(string(content)); err == nil && pid != "" {
		return "process " + pid
	}
	return "unknown process"
}

// Release releases the lock. The file stays: if it was removed, a runtime that has it open already would not exclude one
// that creates it again.
func (l *Lock) Release() error { return l.file.Close() }
