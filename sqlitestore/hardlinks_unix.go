//go:build !windows

package sqlitestore

import (
	"io/fs"
	"syscall"
)

// hardLinks returns the number of names that the file has.
func hardLinks(_ string, info fs.FileInfo) (int, error) {
	return int(info.Sys().(*syscall.Stat_t).Nlink), nil
}
