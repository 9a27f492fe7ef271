//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// Lock locks an open file, or returns ErrLocked. The lock ends when it is unlocked, or when the file is closed here and
// in every process that inherited it. Go's processes inherit it only until they begin to run their program.
func Lock(file *os.File) error { return flock(file, syscall.LOCK_EX) }

// Share is Lock for a shared lock, which several processes can hold at once.
func Share(file *os.File) error { return flock(file, syscall.LOCK_SH) }

// Unlock unlocks a file.
func Unlock(file *os.File) error { return flock(file, syscall.LOCK_UN) }

func flock(file *os.File, how int) error {
	for {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		}
		return err
	}
}
