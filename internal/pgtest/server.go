package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	startLimit = 2 * time.Minute
	stopLimit  = 15 * time.Second
)

// Options configure a server. The zero value is good for tests.
type Options struct {
	// Settings are written to postgresql.conf and win over the defaults: fsync off, max_connections 200,
	// max_prepared_transactions 50, shared_buffers 128MB, wal_level replica, max_wal_senders 5, wal_keep_size 256MB.
	//
	// With fsync off, writes reach the operating system, but not the disk at once. Only a crash of the machine loses
	// data. A crash of PostgreSQL does not, so crash tests are sound. Set it to on where the cost of a flush matters.
	Settings map[string]string

	// Port is the port on 127.0.0.1, and part of the socket's name. Default 0: a free one is chosen.
	Port int

	// NoTCP makes the server listen on its unix socket alone, which only this user can reach. By default it also
	// listens on 127.0.0.1 and trusts all users of this machine.
	NoTCP bool

	// InMemory keeps the server's folder in memory, which is twice as fast, and sets max_wal_size to 256MB. It has no
	// effect if TMPDIR is set, or without a file system in memory that has room for it (Linux: 4 GiB free in /dev/shm).
	InMemory bool

	// BinDir is the folder of the server binaries. Default: the result of Find.
	BinDir string
}

// Server is a private PostgreSQL server. Its superuser is postgres, without a password. All methods may be called at
// any time and from any goroutine. Those that start or stop it wait for each other.
type Server struct {
	folder
	bin      string
	port     int
	noTCP    bool
	inMemory bool   // its standbys are in memory too
	upstream string // how a standby connects to its primary

	mu        sync.Mutex // held while the server is started or stopped
	walWriter int        // the process that HoldWAL stopped; 0: none
	run       atomic.Pointer[process]
	stopped   bool
	last      atomic.Pointer[string] // the end of the log, once its file is removed
}

// Start starts a new server and returns when it accepts connections. The caller must call Stop. ctx limits only the
// start. If Start fails, it leaves nothing behind.
func Start(ctx context.Context, options Options) (*Server, error) {
	return start(ctx, options, func(ctx context.Context, s *Server) error { return s.initialize(ctx) })
}

func start(ctx context.Context, options Options, fill func(context.Context, *Server) error) (*Server, error) {
	if options.BinDir == "" {
		var err error
		options.BinDir, err = Find()
		if err != nil {
			return nil, err
		}
	}
	folder, err := newFolder(options.InMemory)
	if err != nil {
		return nil, err
	}
	s := &Server{folder: folder, bin: options.BinDir, noTCP: options.NoTCP, inMemory: options.InMemory}
	owned.Store(s, nil)
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := fill(ctx, s); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	if err := s.launchFirst(ctx, options); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// DSN returns the URL of a database, by the unix socket.
func (s *Server) DSN(database string) string {
	return s.url("", database, url.Values{"host": {s.socket()}, "port": {strconv.Itoa(s.port)}})
}

// Port returns the server's port on 127.0.0.1. It never changes.
func (s *Server) Port() int { return s.port }

// Address returns where the server listens on 127.0.0.1, as host:port.
func (s *Server) Address() string { return "127.0.0.1:" + strconv.Itoa(s.Port()) }

// TCPDSN returns the URL of a database, by 127.0.0.1.
func (s *Server) TCPDSN(database string) string {
	return s.url(s.Address(), database, url.Values{"sslmode": {"disable"}})
}

func (s *Server) url(host, database string, query url.Values) string {
	return withSettings(&url.URL{Scheme: "postgres", User: url.User("postgres"), Host: host, Path: "/" + database},
		query)
}

// PID returns the process id of the postmaster; 0 while the server does not run.
func (s *Server) PID() int {
	if p := s.run.Load(); p != nil && p.running() {
		return p.cmd.Process.Pid
	}
	return 0
}

// Log returns the end of the server's log, also after Stop.
func (s *Server) Log() string {
	if last := s.last.Load(); last != nil {
		return *last
	}
	return tail(s.log(), 0, 8<<10)
}

// Stop stops the server and removes its folder. It asks for a fast shutdown, and kills the server if that takes too
// long or ctx ends. Further calls do nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	var err error
	s.endHold(syscall.SIGCONT)
	if p := s.run.Load(); p != nil {
		if !p.end(syscall.SIGINT, stopLimit, ctx.Done()) && !p.end(syscall.SIGQUIT, stopLimit, nil) {
			err = p.kill(s.data())
		}
		s.releaseMemory(ctx)
	}
	last := s.Log()
	s.last.Store(&last)
	s.stopped = true
	owned.Delete(s)
	err = errors.Join(err, s.remove())
	if err != nil {
		return fmt.Errorf("stop PostgreSQL in %s: %w", s.path, err)
	}
	return nil
}

// Kill kills the postmaster with SIGKILL. It returns when all other processes of the server have ended, so that
// StartAgain can follow at once.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.run.Load()
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Kill()
	s.endHold(syscall.SIGKILL)
	return p.kill(s.data())
}

// Restart stops the server in mode "fast" (an orderly shutdown) or "immediate" (like a crash) and starts it again at
// the same addresses. It returns when the server accepts connections.
func (s *Server) Restart(ctx context.Context, mode string) error {
	sig, known := map[string]syscall.Signal{"fast": syscall.SIGINT, "immediate": syscall.SIGQUIT}[mode]
	if !known {
		return fmt.Errorf("restart PostgreSQL: mode %q is neither fast nor immediate", mode)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.run.Load()
	if mode == "fast" {
		s.endHold(syscall.SIGCONT)
	} else if p != nil {
		_ = p.cmd.Process.Signal(sig)
		s.endHold(syscall.SIGKILL)
	}
	if p != nil && !p.end(sig, stopLimit, ctx.Done()) {
		return fmt.Errorf("restart PostgreSQL: it did not end (%s): %w", mode, context.Cause(ctx))
	}
	return s.launchAgain(ctx)
}

// StartAgain starts a server that has ended, at the same addresses. It returns when the server accepts connections.
func (s *Server) StartAgain(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launchAgain(ctx)
}

// releaseMemory frees the shared memory that a killed server left in the kernel. Only PostgreSQL itself can find it: a
// single-user server takes it over when it starts and frees it when it ends.
func (s *Server) releaseMemory(ctx context.Context) {
	if _, err := os.Stat(s.data() + "/postmaster.pid"); err != nil {
		return // it ended in order
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	_ = s.tool(ctx, "postgres", "--single", "-D", s.data(), "postgres")
}
