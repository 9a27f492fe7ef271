//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlitestore

import (
	"os"
	"syscall"
	"testing"

	"github.com/millrace-go/millrace/sqlitestore/internal/ownerlock"
)

// The lock files belong to those who may use the file, whoever creates them.
func TestLockFilesHaveThePermissionsOfTheFile(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	store.Close()
	noError(t, os.Chmod(store.path, 0o660))
	noError(t, os.Remove(store.path+queueSuffix))
	const other = 65534
	root := os.Geteuid() == 0
	if root {
		noError(t, os.Chown(store.path, other, other))
	}
	again := openStore(t, store.path, Options{})
	lock := must(ownerlock.Acquire(again.path))(t)
	defer func() { noError(t, lock.Release()) }()
	for _, name := range []string{store.path + queueSuffix, ownerlock.Name(store.path)} {
		info := must(os.Stat(name))(t)
		if mode := info.Mode().Perm(); mode != 0o660 {
			t.Errorf("%s has the permissions %v", name, mode)
		}
		if owner := info.Sys().(*syscall.Stat_t).Uid; root && owner != other {
			t.Errorf("%s belongs to %d", name, owner)
		}
	}
}
