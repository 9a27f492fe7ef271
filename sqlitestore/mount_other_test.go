//go:build !linux

package sqlitestore

func childMounts(string) error { return nil }
