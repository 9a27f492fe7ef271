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
	// Chosen ports stay below the range from which systems number outgoing connections (32768 and up), so that nobody
	// takes a server's port by accident while it restarts.
	lowestPort, highestPort = 20000, 32000
)

var errStopped = errors.New("start PostgreSQL: it was stopped and its folder removed")

// errPortTaken is matched by what the server logs when it cannot listen.
var errPortTaken = errors.New("the port is taken")

// launchFirst writes the configuration and starts the server; a chosen port that turns out to be taken is replaced.
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
		"wal_keep_size":             "256MB", // a standby that was detached finds what it missed
	}
	if options.InMemory {
		settings["max_wal_size"] = "256MB"
	}
	if _, err := os.Stat(filepath.Join(s.data(), "standby.signal")); err == nil {
		clear(settings) // a standby came with those of its primary
	}
	maps.Copy(settings, options.Settings)
	settings["unix_socket_directories"] = s.socket()
	settings["listen_addresses"] = "127.0.0.1"
	if s.noTCP {
		settings["listen_addresses"] = ""
	}
	for attempt := 1; ; attempt++ {
		s.port = options.Port
		if s.port == 0 {
			s.port = freePort()
		}
		settings["port"] = strconv.Itoa(s.port)
		if err := s.configure(settings); err != nil {
			return err
		}
		err := s.launch(ctx)
		if !errors.Is(err, errPortTaken) || options.Port != 0 || attempt == portAttempts {
			return err
		}
	}
}

// launchAgain starts the server with the port it had, waiting for it where it is taken.
func (s *Server) launchAgain(ctx context.Context) error {
	if s.stopped {
		return errStopped
	}
	if pid := s.PID(); pid != 0 {
		return fmt.Errorf("start PostgreSQL again: it runs, as process %d", pid)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	ticker := time.NewTicker(20 * pollEvery)
	defer ticker.Stop()
	for {
		err := s.launch(ctx)
		if !errors.Is(err, errPortTaken) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
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
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if pid, state := postmaster(s.data()); pid == cmd.Process.Pid && state == "ready" {
			return nil
		}
		select {
		case <-p.exited:
			said := tail(s.log(), before, 4<<10)
			if strings.Contains(said, "could not create any TCP/IP sockets") {
				return fmt.Errorf("start PostgreSQL on port %d: %w", s.port, errPortTaken)
			}
			return fmt.Errorf("start PostgreSQL in %s: it ended at once: %s", s.path, said)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("start PostgreSQL in %s: %w: %s", s.path, context.Cause(ctx),
				tail(s.log(), before, 4<<10)), p.kill(s.data()))
		case <-ticker.C:
		}
	}
}

// configure adds settings to postgresql.conf, where the last of a name wins and ALTER SYSTEM wins over all.
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
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("configure PostgreSQL: %w", err)
	}
	return nil
}

// tool runs one of PostgreSQL's programs to its end. It dies with ctx and with this process, and its children with it.
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

// dress sets who runs a program and in which surroundings: as the unprivileged user, in a process group of its own, out
// of reach of the terminal's Ctrl-C, and without what is meant for other PostgreSQL programs.
func (f folder) dress(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = f.path
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: f.owner}
	endWithParent(cmd.SysProcAttr)
	foreign := func(variable string) bool {
		return strings.HasPrefix(variable, "PG") || strings.HasPrefix(variable, "LC_") || strings.HasPrefix(variable, "LANG")
	}
	cmd.Env = append(slices.DeleteFunc(os.Environ(), foreign), "LC_ALL=C")
	return cmd
}

// freePort returns a port that nobody listens on at the moment.
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

// tail returns the end of what a file holds after an offset, at most limit bytes.
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
