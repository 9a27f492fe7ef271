// Package filelock locks open files. A lock belongs to an open file, so two open files of one process exclude each
// other as well. The operating system releases a lock when its process ends.
package filelock

import "errors"

// ErrLocked is returned if another open file has the lock.
var ErrLocked = errors.New("locked")
