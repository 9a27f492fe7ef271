package engine

import (
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
)

// LeaseDeadline returns until when a node may trust its leases. Zero means that it may not. changed is closed when the
// deadline may have changed.
type LeaseDeadline func() (until time.Time, changed <-chan struct{})

// Advance moves a checkpoint from Lease.Checkpoint to To.
type Advance struct {
	Lease Lease
	To    int64
	// Begun is an attempt that was counted in advance and ended without an outcome, though the process lives. A release
	// takes it back.
	Begun Begun
	// Replaying is a dead letter whose replay was counted in advance and ended without an outcome; 0 means none. A
	// release takes that back, too.
	Replaying int64
}

// Begun is an attempt at the event at Position that is counted before the handler is called. Attempt is its number.
type Begun struct {
	Position int64
	Attempt  int
}

// Lease is the right to run one projection. It belongs to one owner under one epoch.
type Lease struct {
	// Row is the key of the lease in the store. TenantRow is that of the tenant: a tenant that is created again under
	// its name has another.
	Row, TenantRow int32
	// ID is the projection that is leased.
	ID projection.ID
	// Partitions is how many partitions the projection has. Share is the events of this one.
	Partitions int
	Share      partition.Share
	// Owner is the node that holds the lease.
	Owner string
	// Epoch is the fencing number: every claim raises it, and a write under an older one is refused.
	Epoch int64
	// Checkpoint is the position up to which every settled event was handled, parked or skipped.
	Checkpoint int64
	// CrashCount counts consecutive owners that died before they committed a batch or were at rest.
	CrashCount int
	// Desired is the desired state of the projection. It is WantPause while the projection is suspended.
	Desired DesiredState
	// FailingPosition is the event that failed last and is not handled, parked or skipped yet; 0 means none. Attempts
	// counts its failures, and FailingSince is when it failed first, by the server's clock.
	FailingPosition int64
	Attempts        int
	FailingSince    time.Time
	// CrashPosition is an event at which processes may have crashed. CrashAttempts counts the attempts at it that began
	// and have no outcome.
	CrashPosition int64
	CrashAttempts int
	// Failed is why the projection waits for a person. It is empty if it does not.
	Failed string
	// Parked counts the parked dead letters. Blocked counts those of them whose events did not fail: they are parked
	// because an earlier event of their stream is. It is NotCounted unless it was needed, since a row does not have it.
	Parked, Blocked int64
	// Halted reports whether the projection waits until a user resumes it. Otherwise it tries again by itself.
	Halted bool
	// ParkedStreams reports whether later events of parked streams are parked, too. HasCommands reports whether there
	// are open commands for dead letters.
	ParkedStreams, HasCommands bool
	// Incarnation is the server's incarnation when the lease was read.
	Incarnation Incarnation
}

// LeaseKey identifies a lease: a later claim of the same row has a higher epoch.
type LeaseKey struct {
	Row   int32
	Epoch int64
}

// Key returns the lease's key.
func (l Lease) Key() LeaseKey { return LeaseKey{Row: l.Row, Epoch: l.Epoch} }

// Incarnation identifies one life of a server without loss. A crash, an immediate stop and a promotion end it, since
// commits may be lost and their positions handed out again. An orderly restart does not. Data read in one incarnation
// are not valid in another. 0 means none.
type Incarnation int64

// quarantineAfter is how many consecutive owners must die before their events are quarantined.
const quarantineAfter = 3

// Crashing reports whether a process seems to have ended at the next event. Such events of all projections are tried
// one by one.
func (l Lease) Crashing() bool { return l.CrashPosition > l.Checkpoint && l.CrashAttempts > 0 }

// Quarantined reports whether one of the next events may crash the process: several owners died without having
// committed a batch, or one died at an attempt that was counted in advance. Then the events of one batch are handled
// one by one, and each attempt is counted before the handler runs.
func (l Lease) Quarantined() bool {
	return l.CrashCount >= quarantineAfter || l.Crashing()
}

// Check returns an error that wraps ErrLeaseLost unless now, the lease's row as read later, has the same owner, epoch
// and projection: after a failover the number of a lost row may belong to another projection. exists is false if the
// row no longer exists.
func (l Lease) Check(now Lease, exists bool) error {
	switch {
	case !exists, now.ID != l.ID:
		return fmt.Errorf("read the lease of %s: the projection was removed: %w", l.ID, projection.ErrLeaseLost)
	case now.Owner != l.Owner || now.Epoch != l.Epoch:
		return fmt.Errorf("read the lease of %s: %q holds it under epoch %d: %w", l.ID, now.Owner, now.Epoch,
			projection.ErrLeaseLost)
	}
	return nil
}

// NotCounted is Lease.Blocked before the dead letters were counted.
const NotCounted = -1

// SetParked sets how many dead letters are parked. How many of them did not fail must be counted again.
func (l *Lease) SetParked(n int64) {
	l.Parked, l.Blocked = n, NotCounted
	if n == 0 {
		l.Blocked = 0
	}
}

// SetFailed sets how many of the parked dead letters are of events that failed.
func (l *Lease) SetFailed(n int64) { l.Blocked = max(0, l.Parked-n) }

// Block adds dead letters of events that did not fail.
func (l *Lease) Block(n int64) {
	l.Parked += n
	if l.Blocked != NotCounted {
		l.Blocked += n
	}
}

// ParkedFailures counts the parked dead letters whose events failed. If they were not counted, a batch cannot reach a
// limit, and it returns 0.
func (l Lease) ParkedFailures() int64 {
	if l.Blocked == NotCounted {
		return 0
	}
	return max(0, l.Parked-l.Blocked)
}

// AttemptsAt returns how often the event at position failed.
func (l Lease) AttemptsAt(position int64) int {
	if l.FailingPosition != position {
		return 0
	}
	return l.Attempts
}

// CrashAttemptsAt returns how many attempts at the event at position began and have no outcome.
func (l Lease) CrashAttemptsAt(position int64) int {
	if l.CrashPosition != position {
		return 0
	}
	return l.CrashAttempts
}

// Deadly reports whether so many processes ended at the event at position that it is parked without another try. That
// takes more than quarantineAfter attempts. So an event of another projection that was only in progress at the time is
// not blamed: by then the event that causes the crashes is in quarantine, and is tried alone.
func (l Lease) Deadly(position int64, policy projection.RetryPolicy) bool {
	died := l.CrashAttemptsAt(position)
	return died > quarantineAfter && died >= policy.MaxAttempts
}

// DesiredState says whether a projection should run.
type DesiredState string

const (
	// WantRun is the state that a projection is created with.
	WantRun DesiredState = "run"
	// WantPause makes the owner release the lease. No node claims it until the projection is resumed.
	WantPause DesiredState = "pause"
)

// Runs reports whether the projection should run. The zero value does.
func (w DesiredState) Runs() bool { return w != WantPause }

// Orders say whether a projection should run, and whether there are commands for its dead letters.
type Orders struct {
	Desired     DesiredState
	HasCommands bool
}
