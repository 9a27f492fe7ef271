package filelock

import (
	"errors"
	"io/fs"
	"os"
)

// OpenBeside opens the lock file that has the name of a store's file with a suffix. If it creates the lock file, that
// gets the permissions of the store's file and, from root, its owner. SQLite does so for its log. Otherwise a program
// that once ran as another user would lock out the others.
func OpenBeside(path, suffix string) (*os.File, error) {
	for {
		file, err := os.OpenFile(path+suffix, os.O_RDWR, 0)
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
		file, err = os.OpenFile(path+suffix, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue // another process has created it
		}
		if of, failed := os.Stat(path); err == nil && failed == nil {
			adopt(file, of)
		}
		return file, err
	}
}
