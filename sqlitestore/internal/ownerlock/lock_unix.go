//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package ownerlock

import (
	"errors"
	"os"
	"syscall"
)

// lock locks an open file, or returns errLocked. The lock ends when the file is closed here and in every process that
// inherited it; Go's processes inherit none.
func lock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		}
		return err
	}
}
