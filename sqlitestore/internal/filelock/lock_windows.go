package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockedByte is beyond the content of the file, which others read while the lock is held.
const lockedByte = 1 << 20

// Lock locks a byte of an open file, or returns ErrLocked.
func Lock(file *os.File) error { return lockByte(file, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// Share is Lock for a shared lock, which several processes can hold at once.
func Share(file *os.File) error { return lockByte(file, 0) }

// Unlock unlocks a file.
func Unlock(file *os.File) error {
	return windows.UnlockFileEx(windows.Handle(file.Fd()), 0, 1, 0, &windows.Overlapped{Offset: lockedByte})
}

func lockByte(file *os.File, flags uint32) error {
	at := &windows.Overlapped{Offset: lockedByte}
	err := windows.LockFileEx(windows.Handle(file.Fd()), flags|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}
