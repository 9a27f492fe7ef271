//go:build !linux

package chaos_test

import "syscall"

func endWithParent() *syscall.SysProcAttr { return nil }
