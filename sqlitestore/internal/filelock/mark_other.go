//go:build !linux

package filelock

import "os"

// Mark marks an open file with a name. It does nothing on this system.
func Mark(*os.File, string) error { return nil }

// Unmark removes the mark of an open file.
func Unmark(*os.File) error { return nil }
