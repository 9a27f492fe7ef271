package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	pollEvery    = 5 * time.Millisecond
	portAttempts = 10
	// Chosen ports are below those of outgoing connections (32768 and up), so that none of them takes a server's port
	// while it restarts.
	lowestPort, highestPort = 20000, 32000
)

var (
	errStopped   = errors.New("start PostgreSQL: it was stopped and its folder removed")
	errPortTaken = errors.New("the port is taken")
	errExited    = errors.New("it ended at once")
)

// launchFirst writes the configuration and starts the server, on a free port unless options name one.
func (s *Server) launchFirst(ctx context.Context, options Options) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errStopped
	}
	settings := map[string]string{
		"fsync":                     "off",
		"max_connections":           "200",
		"max_prepared_transactions": "50",
		"shared_buffers":            "128MB",
		"wal_level":                 "replica",
		"max_wal_senders":           "5",
		"wal_keep_size":             "256MB", // for a standby that was detached
	}
	if options.InMemory {
		settings["max_wal_size"] = "256MB"
	}
	if _, err := os.Stat(filepath.Join(s.data(), "standby.signal")); err == nil {
		clear(settings) // a standby has those of its primary
	}
	maps.Copy(settings, options.Settings)
	settings["unix_socket_directories"] = s.socket()
	settings["listen_addresses"] = "127.0.0.1"
	if s.noTCP {
		settings["listen_addresses"] = ""
	}
	onPort := func(port int) error {
		s.port = port
		settings["port"] = strconv.Itoa(port)
		if err := s.configure(settings); err != nil {
			return err
		}
		return s.launch(ctx)
	}
	if options.Port != 0 {
		return onPort(options.Port)
	}
	return onFreePort(onPort)
}

// launchAgain starts the server on its port, and waits if the port is taken.
func (s *Server) launchAgain(ctx context.Context) error {
	if s.stopped {
		return errStopped
	}
	if pid := s.PID(); pid != 0 {
		return fmt.Errorf("start PostgreSQL again: it runs as process %d", pid)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return poll(ctx, func() (bool, error) {
		err := s.launch(ctx)
		if errors.Is(err, errPortTaken) && ctx.Err() == nil {
			return false, nil
		}
		return true, err
	})
}

// launch starts the server and returns when it accepts connections.
func (s *Server) launch(ctx context.Context) error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open PostgreSQL's log: %w", err)
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("open PostgreSQL's log: %w", err)
	}
	cmd := s.dress(exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.data()))
	cmd.Stdout, cmd.Stderr = log, log
	p, err := spawn(cmd)
	if err != nil {
		return err
	}
	s.run.Store(p)
	err = poll(ctx, func() (bool, error) {
		if pid, state := postmaster(s.data()); pid == cmd.Process.Pid && state == "ready" {
			return true, nil
		}
		if p.running() {
			return false, nil
		}
		if strings.Contains(tail(s.log(), before, 4<<10), "could not create any TCP/IP sockets") {
			return false, errPortTaken
		}
		return false, errExited
	})
	if err != nil {
		return errors.Join(fmt.Errorf("start PostgreSQL in %s on port %d: %w: %s", s.path, s.port, err,
			tail(s.log(), before, 4<<10)), p.kill(s.data()))
	}
	return nil
}

// poll calls done every few milliseconds until it reports true or fails, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// configure adds settings to postgresql.conf, where the last one of a name wins. ALTER SYSTEM wins over all.
func (s *Server) configure(settings map[string]string) error {
	var text bytes.Buffer
	text.WriteByte('\n')
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		value := strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(settings[name])
		fmt.Fprintf(&text, "%s = '%s'\n", name, value)
	}
	file, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("configure PostgreSQL: %w", err)
	}
	_, err = file.Write(text.Bytes())
	err = errors.Join(err, file.Close())
	if err != nil {
		return fmt.Errorf("configure PostgreSQL: %w", err)
	}
	return nil
}

// tool runs one of PostgreSQL's programs. When ctx or this process ends, the program and its children are killed.
func (s *Server) tool(ctx context.Context, name string, args ...string) error {
	cmd := s.dress(exec.CommandContext(ctx, filepath.Join(s.bin, name), args...))
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = stopLimit
	runtime.LockOSThread() // see spawn
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", name, errors.Join(err, context.Cause(ctx)), bytes.TrimSpace(out))
	}
	return nil
}

// dress sets the user, the process group and the environment of a program: the unprivileged user, a group that Ctrl-C
// in the terminal does not reach, and no variables that configure PostgreSQL programs.
func (f folder) dress(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = f.path
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: f.owner}
	endWithParent(cmd.SysProcAttr)
	foreign := func(variable string) bool {
		return strings.HasPrefix(variable, "PG") || strings.HasPrefix(variable, "LC_") ||
			strings.HasPrefix(variable, "LANG")
	}
	cmd.Env = append(slices.DeleteFunc(os.Environ(), foreign), "LC_ALL=C")
	return cmd
}

// onFreePort calls launch with a free port, and with others while its error is errPortTaken.
func onFreePort(launch func(port int) error) (err error) {
	for range portAttempts {
		err = launch(freePort())
		if !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// freePort returns a port on which no program listens at the moment.
func freePort() int {
	port := 0
	for range 100 {
		port = lowestPort + rand.IntN(highestPort-lowestPort)
		listener, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			listener.Close()
			break
		}
	}
	return port
}

// tail returns the end of a file after an offset, at most limit bytes.
func tail(path string, offset, limit int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil {
		offset = max(offset, info.Size()-limit)
	}
	content, _ := io.ReadAll(io.NewSectionReader(file, offset, limit))
	return strings.TrimSpace(string(content))
}
