//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package ownerlock

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestReleaseFreesAnInheritedLock releases a lock while another process, which is being started, has the file open.
func TestReleaseFreesAnInheritedLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	held, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := syscall.Dup(int(held.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(inherited) }()
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	next, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Release(); err != nil {
		t.Fatal(err)
	}
}
