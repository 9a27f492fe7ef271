// Package faults says where the cause of an error lies, and so who waits, retries or is blamed for it.
package faults

import (
	"time"

	"github.com/millrace-go/millrace/projection"
)

// Class says where the cause of an error lies. Its text is shown in logs and status.
type Class string

const (
	// Infrastructure faults are retried for ever and never counted against an event: waits for another session's lock,
	// deadlocks, serialization failures, and all errors of millrace's own statements.
	Infrastructure Class = "infrastructure"
	// LeaseLost ends the projection on this node; another owner continues it.
	LeaseLost Class = "lease lost"
	// Handler faults are counted against the event, and the policy decides what happens to the event.
	Handler Class = "handler"
	// Configuration faults stop the projection until the configuration is repaired.
	Configuration Class = "configuration"
	// Unclear faults do not show by the error alone whether the server or the event is at fault: a lost connection,
	// lack of resources, an internal error. FaultHistory decides about them, by a probe and by repetition.
	Unclear Class = "unclear"
	// Interrupted faults may pass with the moment or the connection: a cancelled statement, a stale statement cache.
	// The event is tried once more on a new connection, and is at fault if they recur.
	Interrupted Class = "interrupted"
	// MissingObject faults are about a table, column, function, schema or privilege that the handler needs and that
	// does not exist. The projection waits for it, for a bounded time.
	MissingObject Class = "missing object"
)

// MayCount reports whether a fault of this class can become a counted failure of its event.
func (c Class) MayCount() bool {
	return c == Handler || c == Unclear || c == Interrupted || c == MissingObject
}

// String returns the class as a word.
func (c Class) String() string { return string(c) }

// Fault is a classified error of a projection.
type Fault struct {
	Class Class
	// Position is the failed event if the handler names it, else 0.
	Position int64
	// Stack is the stack of a panic. It is empty if there was none.
	Stack string
	// Probe reports that the server itself may be the cause. A probe on another connection finds out.
	Probe bool
	// Unreachable reports that such a probe failed: nothing can be done before the server is back.
	Unreachable bool
	// Returned reports whether the handler returned an error of its own, not one of its batch's connection.
	Returned bool
	// Conflict reports that a batch was rolled back because of other transactions: a deadlock, a wait for a lock or a
	// serialization failure. A smaller batch meets fewer of them. Rivals are the other projections whose batches were
	// in the deadlock, as far as they are known. Blocked reports a Conflict before the handler was called: the batch
	// waited too long for another one to end. A smaller batch would wait as well.
	Conflict bool
	Rivals   []Rival
	Blocked  bool
	// Missing says what a MissingObject means if the statement was the store's own: the store was not migrated.
	Missing error
	Err     error
}

// Rival is a projection whose batches deadlock with those of another one. Row is the row of its lease.
type Rival struct {
	ID  projection.ID
	Row int32
}

func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the classified error.
func (f *Fault) Unwrap() error { return f.Err }

const (
	// uncountedFaults is how many Unclear faults an event meets alone before they count. With fewer, an event could be
	// blamed for a server that recovers from a backend's crash, or for a pooler that restarts. With more, an event that
	// harms the server would harm it more often.
	uncountedFaults = 10
	// uncountedFor is how long they must last. The faults of a passing shortage, say of memory, come in quick
	// succession: ten of them take some 20 s with the delays between them.
	uncountedFor = time.Minute
	// waitForObjects is the default of Projection.MissingObjectTimeout: long enough for the migrations of a deployment.
	waitForObjects = 5 * time.Minute
)

// Limits bound the faults of an event that are not counted. The zero value means the defaults.
type Limits struct {
	// Faults is how many Unclear faults an event meets alone before they count. Over is the least time from the first
	// to the last of them. Defaults 10 and 1 min.
	Faults int
	Over   time.Duration
	// MissingObject is how long an event waits for a missing object or privilege. Default 5 min; negative means not at
	// all.
	MissingObject time.Duration
}

// WithDefaults returns l with the defaults in place of zeros.
func (l Limits) WithDefaults() Limits {
	if l.Faults == 0 {
		l.Faults = uncountedFaults
	}
	if l.Over == 0 {
		l.Over = uncountedFor
	}
	if l.MissingObject == 0 {
		l.MissingObject = waitForObjects
	}
	return l
}
