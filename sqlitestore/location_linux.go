package sqlitestore

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// identity distinguishes a file from all other files while it exists.
func identity(info fs.FileInfo) string {
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(stat.Dev, " ", stat.Ino)
}

// isMount reports whether a file is mounted alone: its mount is not that of its folder. The device does not tell, since
// it is that of the file itself. Without /proc it returns false.
func isMount(path string) (bool, error) {
	file, err := mountID(path)
	if err != nil || file == "" {
		return false, err
	}
	folder, err := mountID(filepath.Dir(path))
	return folder != "" && folder != file, err
}

// mountID returns the number of the mount of a file, or an empty string if the system does not tell. It opens the file
// by O_PATH, so that closing it releases no locks.
func mountID(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("find the mount of %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	info, err := os.ReadFile(fmt.Sprint("/proc/self/fdinfo/", fd))
	if err != nil {
		return "", nil
	}
	_, id, _ := strings.Cut(string(info), "mnt_id:")
	id, _, _ = strings.Cut(id, "\n")
	return strings.TrimSpace(id), nil
}
