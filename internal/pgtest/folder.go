package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	folderPrefix = "millrace-pg-"
	// socketLimit is the longest path of a socket that both Linux (107) and macOS (103) allow.
	socketLimit = 103
	socketRest  = folderPrefix + "1234567890/socket/.s.PGSQL.65535"
)

// folder is the temporary folder of one server. The owning process holds a lock on its lock file. When the owner is
// killed, the lock is released, and sweep knows the folder as abandoned.
type folder struct {
	path  string
	owner *syscall.Credential // the user of the server; nil: that of this process
	lock  *os.File
}

func (f folder) data() string   { return filepath.Join(f.path, "data") }
func (f folder) socket() string { return filepath.Join(f.path, "socket") }
func (f folder) log() string    { return filepath.Join(f.path, "log") }

// users are the users as which servers run if this process is root.
var users = []string{"postgres", "nobody"}

func newFolder(memory bool) (f folder, err error) {
	f.owner, err = unprivileged()
	if err != nil {
		return f, err
	}
	base, err := baseFolder(f.owner != nil, memory)
	if err != nil {
		return f, err
	}
	sweep(base)
	f.path, err = os.MkdirTemp(base, folderPrefix)
	if err != nil {
		return f, fmt.Errorf("make folder for PostgreSQL: %w", err)
	}
	err = f.fill()
	if err != nil {
		_ = f.remove()
		return f, fmt.Errorf("prepare folder for PostgreSQL: %w", err)
	}
	return f, nil
}

func (f *folder) fill() (err error) {
	f.lock, err = os.Create(filepath.Join(f.path, "lock"))
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", f.lock.Name(), err)
	}
	// sweep spares folders with an empty lock file, which is not locked yet.
	if _, err := fmt.Fprintln(f.lock, os.Getpid()); err != nil {
		return err
	}
	for _, dir := range []string{f.data(), f.socket()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if f.owner == nil {
			continue
		}
		if err := os.Chown(dir, int(f.owner.Uid), int(f.owner.Gid)); err != nil {
			return err
		}
	}
	if f.owner != nil {
		return os.Chmod(f.path, 0o711)
	}
	return nil
}

func (f folder) remove() error {
	err := os.RemoveAll(f.path)
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}

// unprivileged returns the user of servers if this process is root, because PostgreSQL refuses to run as root.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range users {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read user id of %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read group id of %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("run PostgreSQL as root: none of the users %s exists", strings.Join(users, ", "))
}

// baseFolder returns the parent of temporary folders. Its path is short enough for a socket, and the server's user can
// open it.
func baseFolder(foreign, memory bool) (string, error) {
	bases := []string{os.TempDir(), "/tmp"}
	if dir := memoryFolder(); memory && dir != "" && os.Getenv("TMPDIR") == "" {
		bases = slices.Insert(bases, 0, dir)
	}
	for _, base := range bases {
		real, err := filepath.EvalSymlinks(base)
		if err != nil {
			continue
		}
		if len(real)+1+len(socketRest) <= socketLimit && (!foreign || traversable(real)) {
			return real, nil
		}
	}
	return "",
		fmt.Errorf("make folder for PostgreSQL: neither %s nor /tmp has a path short enough for a socket and is open to the server's user",
			os.TempDir())
}

func traversable(path string) bool {
	for {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
		path = filepath.Dir(path)
	}
}

// sweep removes the abandoned folders of this user. It ignores errors.
func sweep(base string) {
	paths, _ := filepath.Glob(filepath.Join(base, folderPrefix+"*"))
	for _, path := range paths {
		lock, err := os.Open(filepath.Join(path, "lock"))
		if err != nil {
			continue
		}
		if abandoned(lock) && !endOrphan(path) {
			_ = os.RemoveAll(path)
		}
		lock.Close()
	}
}

func abandoned(lock *os.File) bool {
	info, err := lock.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid() && syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// endOrphan ends the server that still runs in an abandoned folder, and reports whether there was one. The answer of
// its socket proves that the process id in the folder is still that of the server.
func endOrphan(path string) bool {
	sockets, _ := filepath.Glob(filepath.Join(path, "socket", ".s.PGSQL.*[0-9]"))
	for _, socket := range sockets {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			continue
		}
		conn.Close()
		if pid, _ := postmaster(filepath.Join(path, "data")); pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
		}
		return true
	}
	return false
}

// postmaster reads the process id and the state of the server of a data folder.
func postmaster(data string) (pid int, state string) {
	content, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0, ""
	}
	lines := strings.Split(string(content), "\n")
	pid, _ = strconv.Atoi(strings.TrimSpace(lines[0]))
	if len(lines) > 7 {
		state = strings.TrimSpace(lines[7])
	}
	return pid, state
}
