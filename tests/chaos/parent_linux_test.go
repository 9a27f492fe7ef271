package chaos_test

import "syscall"

// endWithParent makes the kernel end a process when the thread dies that started it: a frozen one reads no orders.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
