package machine

import (
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// checkEvery is how often a halted or misconfigured projection reads its row, should a notification be lost.
const checkEvery = 15 * time.Second

// Config is what the projection is registered with, and the intervals that its node works by. The projections of all
// tenants share it, so it is never changed.
type Config struct {
	// Def is never changed, and no function in it is called.
	Def *engine.Definition
	// HeartbeatInterval is how soon a projection checks again for a missing heartbeat.
	HeartbeatInterval time.Duration
	// AdvanceEvery bounds how long the checkpoint lags behind the position. The projections of a node that began at
	// Start move their checkpoints at the same instants.
	AdvanceEvery time.Duration
	Start        time.Time
	// ReplayBackoff is how long no replay is made after one without an outcome. It doubles with each further one.
	ReplayBackoff time.Duration
}

// Machine is the whole state of a projection. A copy of it is not changed by Step.
type Machine struct {
	*Config
	// Lease is the lease's row in the database, as read last and as changed since by the projection's own writes.
	Lease engine.Lease
	State State
	// Position is the position up to which events were handled or do not concern the projection. Lease.Checkpoint may
	// lag behind it over such events.
	Position int64
	// Tail is the feed's last message, nil before the first.
	Tail          *Tail
	Buffer        Buffer
	Sizer         BatchSizer
	FailureWindow engine.FailureWindow
	// Breaker is nil if there is none. It is replaced and never changed, since other machines may share it.
	Breaker *Breaker
	Replays ReplayQueue
	Crash   Crash
	Faults  Faults
	// LeaseDeadline is until when the node may trust its leases.
	LeaseDeadline time.Time
	// AdvanceAt is when the checkpoint follows the position, zero if it need not.
	AdvanceAt time.Time
	Sent      Sent
}

// Crash describes events at which processes, or the server, may have ended.
type Crash struct {
	// Quarantine is how many more events are tried one by one, each attempt counted in advance.
	Quarantine int32
	// Events is how many events the batch had whose server went away.
	Events int32
	// CutOff is the incarnation of a server that went away while a handler ran, 0 if none did.
	CutOff engine.Incarnation
	// Begun is an attempt that was counted in advance, and has no outcome.
	Begun engine.Begun
}

// Faults are the faults that were not counted against an event.
type Faults struct {
	// InARow counts the faults since something succeeded, Misconfigured those of the configuration among them.
	InARow        int
	Misconfigured int32
	// Changes counts how often the server's incarnation changed since something succeeded.
	Changes int32
	// History has those of the next event.
	History FaultHistory
	// Conflicts is nil without any. It is replaced and never changed.
	Conflicts *Conflicts
	// Object is the missing object that was last written into the database, empty if none was.
	Object string
}

// endStreaks resets the counts of consecutive faults, since something succeeded.
func (f *Faults) endStreaks() { f.InARow, f.Misconfigured, f.Changes = 0, 0, 0 }

// Sent is the last that the shell was given.
type Sent struct {
	Op     int
	Armed  time.Time
	Status Status
}

// New returns the machine of a claimed lease. Its first input is Started.
func New(config *Config, lease engine.Lease) Machine {
	return Machine{Config: config, Lease: lease, State: AwaitingTail{}, Breaker: NewBreaker(config.Def.Breaker),
		Sizer: NewBatchSizer(config.Def.MaxEvents, config.Def.LargestBatch())}
}
