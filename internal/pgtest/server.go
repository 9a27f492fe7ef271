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

// Options say what a server shall be like. The zero value is good for tests.
type Options struct {
	// Settings are written to postgresql.conf and win over the defaults: fsync off, max_connections 200,
	// max_prepared_transactions 50, shared_buffers 128MB, wal_level replica, max_wal_senders 5, wal_keep_size 256MB.
	//
	// fsync off means that writes reach the operating system but not the disk at once. Nothing is lost when PostgreSQL
	// alone is killed, by any signal, so crash tests are sound with it; only a crash of the machine would lose data. A
	// test or a measurement in which the price of a flush matters sets it to on.
	Settings map[string]string

	// Port is the port on 127.0.0.1, and part of the socket's name. Default 0: a free one is chosen.
	Port int

	// NoTCP leaves the server on its unix socket alone, which only this user can reach. By default it listens on
	// 127.0.0.1 too, and trusts everybody on this machine.
	NoTCP bool

	// InMemory keeps the server's folder in memory, which is twice as fast, and sets max_wal_size to 256MB. Where there is no file
	// system in memory with room for it (Linux: 4 GiB free in /dev/shm), or TMPDIR is set, the folder is in the usual place.
	InMemory bool

	// BinDir is the folder of the server binaries. Default: what Find finds.
	BinDir string
}

// Server is a private PostgreSQL server. Its superuser is postgres, without a password. All methods may be called at
// any time and from any goroutine; those that start or end it wait for each other.
type Server struct {
	folder
	bin      string
	port     int
	noTCP    bool
	inMemory bool   // its standbys are in memory too
	upstream string // how a standby connects to its primary

	mu        sync.Mutex // held while the server is started or ended
	walWriter int        // the process that HoldWAL stopped; 0: none
	run       atomic.Pointer[process]
	stopped   bool
	last      atomic.Pointer[string] // the log's tail, once its file is removed
}

// Start makes a new server and returns when it accepts connections. The caller owns it and must call Stop; ctx bounds
// only the start, and nothing is left behind when it fails.
func Start(ctx context.Context, options Options) (*Server, error) {
	return start(ctx, options, func(ctx context.Context, s *Server) error { return s.initialize(ctx) })
}

func start(ctx context.Context, options Options, fill func(context.Context, *Server) error) (*Server, error) {
	if options.BinDir == "" {
		var err error
		if options.BinDir, err = Find(); err != nil {
			return nil, err
		}
	}
	folder, err := newFolder(options.InMemory)
	if err != nil {
		return nil, err
	}
	s := &Server{folder: folder, bin: options.BinDir, noTCP: options.NoTCP, inMemory: options.InMemory}
	owned.add(s)
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err = fill(ctx, s); err == nil {
		err = s.launchFirst(ctx, options)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// DSN returns how to connect to a database by the unix socket, as a URL.
func (s *Server) DSN(database string) string {
	return s.url("", database, url.Values{"host": {s.socket()}, "port": {strconv.Itoa(s.port)}})
}

// Port returns the server's port on 127.0.0.1, which it keeps.
func (s *Server) Port() int { return s.port }

// Address returns where the server listens on 127.0.0.1, as host:port.
func (s *Server) Address() string { return "127.0.0.1:" + strconv.Itoa(s.Port()) }

// TCPDSN returns how to connect to a database by 127.0.0.1, as a URL.
func (s *Server) TCPDSN(database string) string {
	return s.url(s.Address(), database, url.Values{"sslmode": {"disable"}})
}

func (s *Server) url(host, database string, query url.Values) string {
	return withSettings(&url.URL{Scheme: "postgres", User: url.User("postgres"), Host: host, Path: "/" + database}, query)
}

// PID returns the process id of the postmaster, 0 while the server does not run.
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

// Stop ends the server (a fast shutdown, and less gentle ones where that takes too long or ctx is done) and removes its
// folder. It returns when nothing is left; called again it does nothing.
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
	owned.remove(s)
	if err = errors.Join(err, s.remove()); err != nil {
		return fmt.Errorf("stop PostgreSQL in %s: %w", s.path, err)
	}
	return nil
}

// Kill ends the server as a crash does: SIGKILL to the postmaster. It returns when all other processes of the server
// have noticed and are gone, so that StartAgain can follow at once.
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

// Restart ends the server in mode "fast" (sessions are ended, everything is written) or "immediate" (as in a crash) and
// starts it again, at the same addresses. It returns when it accepts connections.
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

// StartAgain starts a server that was killed, or ended in some other way, at the same addresses, and returns when it
// accepts connections.
func (s *Server) StartAgain(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launchAgain(ctx)
}

// releaseMemory frees the shared memory that a killed server left in the kernel, by the only program that knows which
// it is: a single-user PostgreSQL takes it over at its start and frees it at its end.
func (s *Server) releaseMemory(ctx context.Context) {
	if _, err := os.Stat(s.data() + "/postmaster.pid"); err != nil {
		return // it ended in order
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	_ = s.tool(ctx, "postgres", "--single", "-D", s.data(), "postgres")
}
