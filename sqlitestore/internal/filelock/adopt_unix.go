//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filelock

import (
	"io/fs"
	"os"
	"syscall"
)

// adopt gives a new file the permissions of another one, and its owner if the system allows it. Some file systems have
// neither.
func adopt(file *os.File, of fs.FileInfo) {
	_ = file.Chmod(of.Mode().Perm())
	if os.Geteuid() == 0 {
		stat := of.Sys().(*syscall.Stat_t)
		_ = file.Chown(int(stat.Uid), int(stat.Gid))
	}
}
