//go:build !linux

package sqlitestore

import "io/fs"

// identity is used on Linux alone.
func identity(fs.FileInfo) string { return "" }

// isMount reports whether a file is mounted alone. Other systems than Linux cannot mount a file alone.
func isMount(string) (bool, error) { return false, nil }
