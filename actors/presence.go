package actors

import (
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

func (r *Registry) publishSession(change func(*SessionEntry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.session)
	if r.sessionChanged != nil {
		close(r.sessionChanged)
		r.sessionChanged = nil
	}
}

// Session returns the session's entry.
func (r *Registry) Session() SessionEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session
}

// watchSession returns the session's entry, and a channel that is closed when it changes.
func (r *Registry) watchSession() (SessionEntry, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessionChanged == nil {
		r.sessionChanged = make(chan struct{})
	}
	return r.session, r.sessionChanged
}

// poolWorks is called with the error of each use of the pool that shows whether the pool works.
func (r *Registry) poolWorks(err error) {
	r.publishSession(func(e *SessionEntry) {
		switch {
		case err == nil:
			e.PoolFailing = time.Time{}
		case e.PoolFailing.IsZero():
			e.PoolFailing = time.Now()
		}
	})
}

// publishClaims is called at the end of each search for leases.
func (r *Registry) publishClaims(err error) {
	r.publishSession(func(e *SessionEntry) {
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
func (r *Registry) poolFailingFor(d time.Duration) bool {
	since := r.Session().PoolFailing
	return !since.IsZero() && time.Since(since) >= d
}

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
	session, changed := d.Registry.watchSession()
	if !session.Connected {
		return time.Time{}, changed
	}
	return d.deadlineOf(session), changed
}
