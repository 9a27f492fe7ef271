package engine

import (
	"fmt"
	"time"

	"github.com/millrace-go/millrace/projection"
)

// Trust tells until when a node may believe that it holds its leases, as far as it knows now: zero means that it may not.
// When changed is closed, it may know more.
type LeaseDeadline func() (until time.Time, changed <-chan struct{})

// Advance is a move of a checkpoint from lease.Checkpoint to To.
type Advance struct {
	Lease Lease
	To    int64
	// Begun is an attempt that was counted before it was made and that ended without a word on the event, though the process
	// lives. A release takes it back.
	Begun Begun
	// Replaying is a dead letter whose replay ended in the same way; 0 means none. A release takes it back, too.
	Replaying int64
}

// Begun is an attempt at the event at Position, the Attempt-th.
type Begun struct {
	Position int64
	Attempt  int
}

// Lease is the right to run one projection: it belongs to one owner under one epoch.
type Lease struct {
	// Row is the key of the lease in the store.
	Row int32
	// ID is the projection that is leased.
	ID projection.ID
	// Owner is the node that holds the lease.
	Owner string
	// Epoch is the fencing number: every claim raises it, and a write under an older one is refused.
	Epoch int64
	// Checkpoint is the position up to which every settled event was handled, parked or skipped.
	Checkpoint int64
	// Unclean counts claims in a row from owners that died before they committed a batch or were at rest.
	CrashCount int
	// Desired is whether the projection should run.
	Desired DesiredState
	// Attempts counts the failures of the event at FailingPosition so far.
	Attempts int
	// FailingPosition is the event that failed last and was not yet handled, parked or skipped; 0 means none.
	FailingPosition int64
	// FailingSince is when it failed first, by the server's clock.
	FailingSince time.Time
	// TryingPosition is an event at which processes seem to end. Deaths counts the attempts at it that were begun without a
	// word on how they ended.
	CrashPosition int64
	CrashAttempts int
	// LastError is what that failure said.
	LastError string
	// Failed is why the projection waits for somebody, empty where it does not.
	Failed string
	// Halted tells that it waits until somebody resumes it, and does not look by itself whether something was mended.
	Halted bool
	// Parked counts the dead letters that are parked, ParkedStreams tells that there are streams among them whose next
	// events are parked, too, and Commanded that somebody wants something to be done with them.
	Parked        int64
	ParkedStreams bool
	HasCommands   bool
	// Incarnation is that of the server in which the lease was read.
	Incarnation Incarnation
}

// LeaseKey identifies a lease: a later claim of the same row has a higher epoch.
type LeaseKey struct {
	Row   int32
	Epoch int64
}

// Key returns the lease's key.
func (l Lease) Key() LeaseKey { return LeaseKey{Row: l.Row, Epoch: l.Epoch} }

// Incarnation identifies one life of a server without loss. A crash, an immediate stop and a promotion end it, since commits
// may be lost and their positions handed out again. An orderly restart does not. Data read in one incarnation are not valid
// in another. 0 means none.
type Incarnation int64

// suspectAfter is how many owners in a row have to die before their events are suspected of it.
const suspectAfter = 3

// Suspect tells that owner after owner died without having committed a batch, or one at an attempt that was counted before
// it was made, so that an event may be what kills them. Then a batch's worth of events is handled one by one, and each
// attempt is counted before the handler runs.
func (l Lease) Quarantined() bool {
	return l.CrashCount >= suspectAfter || l.CrashPosition > l.Checkpoint && l.CrashAttempts > 0
}

// Check returns an error that wraps ErrLeaseLost unless now, the lease's row as read later, has the same owner, epoch and
// projection: after a failover the number of a lost row may belong to another projection. exists is false if the row no longer
// exists.
func (l Lease) Check(now Lease, exists bool) error {
	switch {
	case !exists, now.ID != l.ID:
		return fmt.Errorf("read the lease of %s: the projection was removed: %w", l.ID, projection.ErrLeaseLost)
	case now.Owner != l.Owner || now.Epoch != l.Epoch:
		return fmt.Errorf("read the lease of %s: %q holds it under epoch %d: %w", l.ID, now.Owner, now.Epoch, projection.ErrLeaseLost)
	}
	return nil
}

// AttemptsAt is how often the event at position failed.
func (l Lease) AttemptsAt(position int64) int {
	if l.FailingPosition != position {
		return 0
	}
	return l.Attempts
}

// DeathsAt is how many processes ended at the event at position, as far as that was counted.
func (l Lease) CrashAttemptsAt(position int64) int {
	if l.CrashPosition != position {
		return 0
	}
	return l.CrashAttempts
}

// Deadly tells that so many processes ended at an attempt at the event at position that it is not to be tried again. An
// event that happens to be under way when another one kills the process is not taken for it: that one is itself suspect,
// and tried apart from this, after suspectAfter deaths.
func (l Lease) Deadly(position int64, policy projection.RetryPolicy) bool {
	died := l.CrashAttemptsAt(position)
	return died > suspectAfter && Exhausted(policy, died)
}

// DesiredState is whether a projection should run.
type DesiredState string

const (
	// WantRun is what a projection is created with.
	WantRun DesiredState = "run"
	// WantPause makes the owner release the lease. Nobody claims it until the projection is resumed.
	WantPause DesiredState = "pause"
)

// Runs reports whether the projection should run. The zero value does.
func (w DesiredState) Runs() bool { return w != WantPause }

// Orders are what is asked of a projection: whether it runs, and whether there are commands for its dead letters.
type Orders struct {
	Desired     DesiredState
	HasCommands bool
}
