package runbook_test

import (
	"os"
	"syscall"
)

// mountSmall mounts a disk of a size on a folder.
func mountSmall(dir, size string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size) }

func unmount(dir string) { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }

// giveTo gives a folder to the owner of another one.
func giveTo(dir, other string) error {
	info, err := os.Stat(other)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	return os.Chown(dir, int(owner.Uid), int(owner.Gid))
}
