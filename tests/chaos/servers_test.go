package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/pgtest"
)

const (
	// app is the role of nodes and writers: no superuser, as in production.
	app = "millrace_chaos"
	// pooled is which node is behind poolers, where there are any.
	pooled = 2
	// maxConnections is enough for two clusters, and so few that a fault can take all of them.
	maxConnections = 110
)

// chooseServers returns the servers of a cluster: the shared one, or servers of its own, which stop with the test.
func chooseServers(ctx context.Context, t testing.TB, own bool) (*servers, error) {
	if own {
		return startServers(ctx, t)
	}
	server, err := sharedServer()
	if err == nil && server.PID() == 0 { // an earlier test failed while it was down
		err = server.StartAgain(ctx)
	}
	if err != nil {
		return nil, err
	}
	s := &servers{addresses: []string{server.Address()}}
	s.primary.Store(server)
	return s, nil
}

// sharedServer is the private server that most tests of the package share. Tests that break it do not run in parallel.
var sharedServer = sync.OnceValues(newServer)

// newServer starts a private server with the role of the nodes.
func newServer() (*pgtest.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	server, err := pgtest.Start(ctx, pgtest.Options{InMemory: true, Settings: map[string]string{
		"max_connections": fmt.Sprint(maxConnections), "superuser_reserved_connections": "10",
		"log_line_prefix": "%m [%p] %a ",
	}})
	if err != nil {
		return nil, err
	}
	return server, execOnce(ctx, server.DSN("postgres"), "create role "+app+" login")
}

// servers are the servers of a cluster: a primary and, unless it is shared, an asynchronous standby. A failover makes
// the standby the primary, and a new standby takes the address of the old primary.
type servers struct {
	primary   atomic.Pointer[pgtest.Server]
	standby   atomic.Pointer[pgtest.Server] // nil: the primary is shared, or a failover is in progress
	addresses []string                      // of both; they never change
	poolers   []*pgtest.PgBouncer           // one in front of each; nil: there are none

	mu     sync.Mutex
	losses []loss
}

// loss is a period whose commits may have been lost with the server. to is zero until the server has failed.
type loss struct{ from, to time.Time }

// startServers starts a primary and a standby with poolers, which stop with the test.
func startServers(ctx context.Context, t testing.TB) (*servers, error) {
	s := new(servers)
	keeping, stopKeeping := context.WithCancel(ctx)
	var keeper sync.WaitGroup
	t.Cleanup(func() {
		stopKeeping()
		keeper.Wait()
		if err := s.stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	primary, err := newServer()
	if err != nil {
		return nil, err
	}
	s.primary.Store(primary)
	standby, err := primary.Standby(ctx, pgtest.StandbyOptions{})
	if err != nil {
		return nil, err
	}
	s.standby.Store(standby)
	for _, server := range []*pgtest.Server{primary, standby} {
		s.addresses = append(s.addresses, server.Address())
		pooler, err := pgtest.StartPgBouncer(ctx, strings.Replace(server.TCPDSN("postgres"), "postgres@", app+"@", 1),
			pgtest.PgBouncerOptions{})
		if errors.Is(err, pgtest.ErrNoPgBouncer) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.poolers = append(s.poolers, pooler)
	}
	keeper.Go(func() { s.keepPoolers(keeping, t) })
	return s, nil
}

// keepPoolers starts poolers again that have ended with an error of their own, as a service manager does. PgBouncer
// 1.18 ends with "bad client state" if a client disconnects while its request to cancel a statement is passed on. The
// fault that kills poolers starts them again by itself.
func (s *servers) keepPoolers(ctx context.Context, t testing.TB) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, pooler := range s.poolers {
			conn, err := net.DialTimeout("tcp", pooler.Address(), 10*time.Second)
			if err == nil {
				_ = conn.Close()
				continue
			}
			if at := strings.LastIndex(pooler.Log(), " FATAL "); at >= 0 {
				t.Logf("PgBouncer has ended, and is started again: %s", pooler.Log()[at:])
				err = pooler.Restart(ctx)
			}
			if err != nil && ctx.Err() == nil {
				t.Logf("a pooler is not reached: %v", err)
			}
		}
	}
}

func (s *servers) stop(ctx context.Context) (err error) {
	for _, pooler := range s.poolers {
		err = errors.Join(err, pooler.Stop(ctx))
	}
	for _, server := range []*pgtest.Server{s.standby.Load(), s.primary.Load()} {
		if server != nil {
			err = errors.Join(err, server.Stop(ctx))
		}
	}
	return err
}

// missingPoolers finds poolers that have ended although no fault has stopped them. Their node then reaches no server.
func (s *servers) missingPoolers() (findings []finding) {
	for _, pooler := range s.poolers {
		conn, err := net.DialTimeout("tcp", pooler.Address(), 10*time.Second)
		if err != nil {
			findings = append(findings, nodeFinding("PgBouncer has ended: %v\n%s", err, pooler.Log()))
			continue
		}
		_ = conn.Close()
	}
	return findings
}

// restartPoolers kills the poolers and starts them again.
func (s *servers) restartPoolers(ctx context.Context) (err error) {
	for _, pooler := range s.poolers {
		err = errors.Join(err, pooler.Restart(ctx))
	}
	return err
}

// server returns the current primary.
func (s *servers) server() *pgtest.Server { return s.primary.Load() }

// lose records that commits from now until over is called may be lost.
func (s *servers) lose() (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.losses)
	s.losses = append(s.losses, loss{from: time.Now()})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.losses[at].to = time.Now()
	}
}

// mayBeLost reports whether a commit between begun and done may be lost.
func (s *servers) mayBeLost(begun, done time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.losses,
		func(l loss) bool { return (l.to.IsZero() || begun.Before(l.to)) && done.After(l.from) })
}

// detach lets the standby catch up, and then disconnects it from the primary.
func (s *servers) detach(ctx context.Context) error {
	standby := s.standby.Load()
	return errors.Join(s.server().CatchUp(ctx, standby), standby.Detach(ctx))
}

// failOver kills the primary, promotes the detached standby, and starts a new standby at the address of the old
// primary. lost is called when the primary is dead, and promoted when there is a primary again.
func (s *servers) failOver(ctx context.Context, lost, promoted func()) error {
	old, next := s.server(), s.standby.Load()
	err := errors.Join(old.Kill(), old.Stop(ctx))
	lost()
	err = errors.Join(err, next.Promote(ctx))
	promoted()
	if err != nil {
		return err
	}
	s.standby.Store(nil)
	s.primary.Store(next)
	fresh, err := next.Standby(ctx, pgtest.StandbyOptions{Port: old.Port()})
	if err == nil {
		s.standby.Store(fresh)
	}
	return err
}
