// Package projection says what a projection, its lease, its checkpoint and its failures are. Decisions about them are
// pure code here; Store is the port through which the actors reach a database.
package projection

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/excerpt"
)

// DefaultTenant is the tenant of a store whose user never says "tenant".
const DefaultTenant = "default"

// ID names one projection of one tenant, and one partition of it.
type ID struct {
	// Tenant is the tenant whose events are projected; empty means DefaultTenant.
	Tenant string
	// Name is the projection's name.
	Name string
	// Partition is the share of the projection's streams, from 0. A projection without partitions has only 0.
	Partition int
}

// longest is how many bytes the name of a tenant or of a projection has at most. A longer one is bad input.
const longest = 100

// String is tenant/name, and tenant/name/partition where the partition is not 0.
func (id ID) String() string {
	if id.Partition == 0 {
		return excerpt.UpTo(id.Tenant, longest) + "/" + excerpt.UpTo(id.Name, longest)
	}
	return fmt.Sprintf("%s/%s/%d", excerpt.UpTo(id.Tenant, longest), excerpt.UpTo(id.Name, longest), id.Partition)
}

// WithDefaults returns id with DefaultTenant in place of an empty tenant.
func (id ID) WithDefaults() ID {
	if id.Tenant == "" {
		id.Tenant = DefaultTenant
	}
	return id
}

// Lease is the right to run one projection: it belongs to one owner under one epoch.
type Lease struct {
	// Row is the key of the lease in the store.
	Row int32
	// ID is the projection that is leased.
	ID ID
	// Owner is the node that holds the lease.
	Owner string
	// Epoch is the fencing number: every claim raises it, and a write under an older one is refused.
	Epoch int64
	// Checkpoint is the position up to which every settled event was handled, parked or skipped.
	Checkpoint int64
	// Unclean counts claims in a row from owners that died before they committed a batch or were at rest.
	Unclean int
	// Wanted tells whether the projection is wanted to run.
	Wanted Wanted
	// Attempts counts the failures of the event at FailingPosition so far.
	Attempts int
	// FailingPosition is the event that failed last and was not yet handled, parked or skipped; 0 means none.
	FailingPosition int64
	// FailingSince is when it failed first, by the server's clock.
	FailingSince time.Time
	// TryingPosition is an event at which processes seem to end. Deaths counts the attempts at it that were begun without a
	// word on how they ended.
	TryingPosition int64
	Deaths         int
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
	Commanded     bool
	// Incarnation is that of the server in which the lease was read.
	Incarnation Incarnation
}

// Incarnation identifies one life of a server without loss. A crash, an immediate stop and a promotion end it, since commits
// may be lost and their positions handed out again. An orderly restart does not. Data read in one incarnation are not valid
// in another. 0 means none.
type Incarnation int64

// suspectAfter is how many owners in a row have to die before their events are suspected of it.
const suspectAfter = 3

// Suspect tells that owner after owner died without having committed a batch, or one at an attempt that was counted before
// it was made, so that an event may be what kills them. Then a batch's worth of events is handled one by one, and each
// attempt is counted before the handler runs.
func (l Lease) Suspect() bool {
	return l.Unclean >= suspectAfter || l.TryingPosition > l.Checkpoint && l.Deaths > 0
}

// Check returns an error that wraps ErrLeaseLost unless now, the lease's row as read later, has the same owner, epoch and
// projection: after a failover the number of a lost row may belong to another projection. exists is false if the row no longer
// exists.
func (l Lease) Check(now Lease, exists bool) error {
	switch {
	case !exists, now.ID != l.ID:
		return fmt.Errorf("read the lease of %s: the projection was removed: %w", l.ID, ErrLeaseLost)
	case now.Owner != l.Owner || now.Epoch != l.Epoch:
		return fmt.Errorf("read the lease of %s: %q holds it under epoch %d: %w", l.ID, now.Owner, now.Epoch, ErrLeaseLost)
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
func (l Lease) DeathsAt(position int64) int {
	if l.TryingPosition != position {
		return 0
	}
	return l.Deaths
}

// Deadly tells that so many processes ended at an attempt at the event at position that it is not to be tried again. An
// event that happens to be under way when another one kills the process is not taken for it: that one is itself suspect,
// and tried apart from this, after suspectAfter deaths.
func (l Lease) Deadly(position int64, policy RetryPolicy) bool {
	died := l.DeathsAt(position)
	return died > suspectAfter && policy.Exhausted(died)
}

// Wanted says whether a projection is wanted to run.
type Wanted string

const (
	// WantRun is what a projection is created with.
	WantRun Wanted = "run"
	// WantPause lets the owner run no further batch. It keeps the lease and its place.
	WantPause Wanted = "pause"
	// WantStop lets the owner give the lease back, and nobody claim it.
	WantStop Wanted = "stop"
)

// Runs tells whether the projection is wanted to run; the zero value says so, too.
func (w Wanted) Runs() bool { return w == WantRun || w == "" }

// Demand is what somebody wants of a projection: that it runs, pauses or stops, and that something is done with its dead
// letters.
type Demand struct {
	Wanted    Wanted
	Commanded bool
}

// Batch is what one transaction of a projection covers.
type Batch struct {
	// Events are the ones that concern the projection, in global order.
	Events []event.Envelope
	// Behind are the ones among them, in order, that are parked behind one of their stream instead.
	Behind []event.Envelope
	// To is the checkpoint after the batch; it may lie beyond the last of Events.
	To int64
	// Replay tells that the batch is a dead letter's one event, which is resolved with it. To is the checkpoint then.
	Replay *Replay
	// Recent is what became of the events before, for an Apply that parks events by itself.
	Recent Recent
	// Yield is closed when somebody waits for the projection to come to rest, so that what can stop in the middle does. Nil
	// where nobody will.
	Yield <-chan struct{}
	// Fresh asks for a connection that no batch has used before.
	Fresh bool
}

// Alone tells that the batch is one event, with nothing before it that is parked: a failure of it is that event's, and the
// checkpoint may move over it.
func (b Batch) Alone() bool {
	return len(b.Events) == 1 && (len(b.Behind) == 0 || b.Behind[0].Position > b.Events[0].Position)
}

var (
	// ErrLeaseLost tells that a write was refused because another owner, or a later epoch, holds the lease, or because
	// the checkpoint is not where the writer believed it to be.
	ErrLeaseLost = errors.New("lease lost")
	// ErrIncarnationChanged is returned when the server crashed or was replaced after the data in memory were read, so that
	// they may no longer exist.
	ErrIncarnationChanged = errors.New("the server crashed or was replaced by another one")
	// ErrUnknownProjection tells that nobody registered a projection of that name.
	ErrUnknownProjection = errors.New("unknown projection")
	// ErrUnknownTenant tells that the store has no such tenant.
	ErrUnknownTenant = errors.New("unknown tenant")
	// ErrTenantDropped is returned when a known tenant's schema, or a table in it, does not exist. The tenant's projections
	// are failed until the schema is restored.
	ErrTenantDropped = errors.New("it was dropped outside of millrace: restore it, or remove the tenant (docs/ownership.md, \"A tenant's schema is gone\")")
	// ErrNotPrimary tells that the server is a standby: nothing ever settles there.
	ErrNotPrimary = errors.New("server is not the primary")
	// ErrRestored tells that a tenant's events end below a checkpoint: the tenant was restored or truncated.
	ErrRestored = errors.New("events end below the checkpoint: the tenant was restored or truncated")
	// ErrTenantLocked is returned when another session keeps a tenant's events locked against reads, as VACUUM FULL and ALTER
	// TABLE do. The read is tried again; other tenants are not concerned.
	ErrTenantLocked = errors.New("events of the tenant are locked")
	// ErrPaused tells that a projection is paused.
	ErrPaused = errors.New("projection is paused")
	// ErrStopped tells that a projection is stopped.
	ErrStopped = errors.New("projection is stopped")
	// ErrFailed tells that a projection stopped and waits for a person.
	ErrFailed = errors.New("projection failed")
)
