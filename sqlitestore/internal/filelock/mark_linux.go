package filelock

import (
	"errors"
	"hash/fnv"
	"os"

	"golang.org/x/sys/unix"
)

// firstMark is the first byte that Mark locks. SQLite locks bytes near 1 GiB, and its files end below 2^48.
const firstMark = 1 << 62

// Mark marks an open file with a name until Unmark. It returns ErrLocked if another open file, of this process or
// another, has marked the same file with another name. Any number of open files may have the same mark.
//
// A mark is a shared lock of an open file description on one byte, whose offset stands for the name. Each process locks
// its own byte before it looks for locks on other bytes, so at least one of two processes sees the other. On systems
// and file systems without such locks, Mark does nothing.
func Mark(file *os.File, name string) error {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(name))
	at := firstMark + int64(sum.Sum64()>>3)
	err := lockBytes(file, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: at, Len: 1})
	switch {
	case errors.Is(err, unix.EINVAL):
		return nil
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return ErrLocked
	case err != nil:
		return err
	}
	for _, others := range []unix.Flock_t{{Start: firstMark, Len: at - firstMark}, {Start: at + 1}} {
		others.Type = unix.F_WRLCK
		if err := lockBytes(file, unix.F_OFD_GETLK, &others); err != nil {
			return errors.Join(err, Unmark(file))
		}
		// A lock that begins before all marks is that of another program.
		if others.Type != unix.F_UNLCK && others.Start >= firstMark {
			return errors.Join(ErrLocked, Unmark(file))
		}
	}
	return nil
}

// Unmark removes the mark of an open file. Closing the file would not do if a process that is being started has
// inherited it.
func Unmark(file *os.File) error {
	err := lockBytes(file, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Start: firstMark})
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

func lockBytes(file *os.File, command int, lock *unix.Flock_t) error {
	for {
		if err := unix.FcntlFlock(file.Fd(), command, lock); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
