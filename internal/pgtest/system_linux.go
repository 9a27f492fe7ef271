package pgtest

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// endWithParent makes the kernel end the server when its parent dies. SIGQUIT is PostgreSQL's immediate shutdown.
// Unlike SIGKILL it leaves no shared memory behind.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }

// memoryFolder returns a file system in memory that has room for servers, or "".
func memoryFolder() string {
	const dir, room = "/dev/shm", 4 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return ""
	}
	return dir
}

// processesIn returns the processes whose working folder is dir: those of a server stay in its data folder.
func processesIn(dir string) []int {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var pids []int
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == dir {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			pids = append(pids, pid)
		}
	}
	return pids
}
