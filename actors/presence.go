package actors

import (
	"sync"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// SessionEntry is what the listener and the node publish about the node's session connection, its heartbeats and its
// claims.
type SessionEntry struct {
	Connected bool
	// Pooled reports that the connection goes through a pooler, so that no notifications arrive.
	Pooled bool
	// Since is when the connection was made or lost. Err is why it was lost.
	Since time.Time
	Err   error
	// Members are the other living nodes that share the leases.
	Members []engine.Member
	// HeartbeatSent is when the last heartbeat that succeeded was sent.
	HeartbeatSent time.Time
	// Claims counts the searches for leases that succeeded. ClaimErr is why the last one failed, and ClaimFailing is
	// since when none has succeeded. Both are zero if it succeeded.
	Claims       int
	ClaimErr     error
	ClaimFailing time.Time
	// PoolFailing is since when the pool does not work, zero if it works.
	PoolFailing time.Time
}

// lasted is the time since the connection was made or lost, 0 if there was none yet.
func (e SessionEntry) lasted() time.Duration {
	if e.Since.IsZero() {
		return 0
	}
	return time.Since(e.Since)
}

// sessionState has the session's entry.
type sessionState struct {
	mu    sync.Mutex
	entry SessionEntry
	// changed is closed when entry changes. It is nil while that is not waited for.
	changed chan struct{}
}

func (s *sessionState) publish(change func(*SessionEntry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.entry)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

func (s *sessionState) get() SessionEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entry
}

// watch returns the entry, and a channel that is closed when it changes.
func (s *sessionState) watch() (SessionEntry, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.entry, s.changed
}

// onPoolUsed is called with the error of each use of the pool that shows whether the pool works.
func (s *sessionState) onPoolUsed(err error) {
	s.publish(func(e *SessionEntry) {
		switch {
		case err == nil:
			e.PoolFailing = time.Time{}
		case e.PoolFailing.IsZero():
			e.PoolFailing = time.Now()
		}
	})
}

// onSearchEnded is called at the end of each search for leases.
func (s *sessionState) onSearchEnded(err error) {
	s.publish(func(e *SessionEntry) {
		e.ClaimErr = err
		switch {
		case err == nil:
			e.ClaimFailing, e.Claims = time.Time{}, e.Claims+1
		case e.ClaimFailing.IsZero():
			e.ClaimFailing = time.Now()
		}
	})
}

// poolFailingFor reports whether the pool has not worked for that long.
func (s *sessionState) poolFailingFor(d time.Duration) bool {
	since := s.get().PoolFailing
	return !since.IsZero() && time.Since(since) >= d
}

// Session returns the session's entry.
func (r *Registry) Session() SessionEntry { return r.session.get() }

// leaseDeadline is until when the node may assume that it holds its leases: 0.9 of LeaseDuration after its last
// heartbeat was sent, by its monotonic clock. So it stops before the server lets other nodes claim them.
func (d *Deps) leaseDeadline() time.Time { return d.deadlineOf(d.Registry.Session()) }

func (d *Deps) deadlineOf(e SessionEntry) time.Time {
	return e.HeartbeatSent.Add(d.Node.LeaseDuration - d.Node.LeaseDuration/10)
}

// leasesConfirmed reports whether the lease deadline has not passed.
func (d *Deps) leasesConfirmed() bool { return time.Now().Before(d.leaseDeadline()) }

// DeliveryDeadline is an engine.LeaseDeadline for deliveries, which no fence holds back. It ends with the session
// connection: without one, other nodes may mark this node dead long before its heartbeat expires.
func (d *Deps) DeliveryDeadline() (until time.Time, changed <-chan struct{}) {
	session, changed := d.Registry.session.watch()
	if !session.Connected {
		return time.Time{}, changed
	}
	return d.deadlineOf(session), changed
}
