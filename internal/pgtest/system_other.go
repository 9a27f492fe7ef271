//go:build !linux

package pgtest

import "syscall"

// endWithParent can do nothing here: a server whose parent was killed runs until the next Start sweeps its folder.
func endWithParent(*syscall.SysProcAttr) {}

// memoryFolder returns "", since no such file system is known here.
func memoryFolder() string { return "" }

func processesIn(string) []int { return nil }
