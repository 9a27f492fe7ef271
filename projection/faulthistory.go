package projection

import (
	"errors"
	"fmt"
	"time"
)

const (
	// uncountedFaults is how many Unclear faults an event meets alone before they are its own. With fewer, a server that
	// recovers from a crash of one backend, or a pooler that restarts, could be blamed on an event. With more, an event that
	// costs the server something each time would cost it more often.
	uncountedFaults = 10
	// uncountedFor is how long they must last. The faults of a passing shortage, say of memory, come in quick succession:
	// ten of them take some 20 s with the delays between them.
	uncountedFor = time.Minute
	// waitForObjects is the default of Projection.MissingObjectTimeout: long enough for the migrations of a deployment.
	waitForObjects = 5 * time.Minute
)

// FaultLimits say how long faults that may be an event's own are not counted against it. The zero value means the defaults.
type FaultLimits struct {
	// Faults and Over are how many Unclear faults an event meets alone, and for how long at least, before they count.
	// Defaults 10 and 1 min.
	Faults int
	Over   time.Duration
	// MissingObject is how long an event waits for what its handler needs in the database. Default 5 min; negative means not
	// at all.
	MissingObject time.Duration
}

// WithDefaults returns l with the defaults in place of zeros.
func (l FaultLimits) WithDefaults() FaultLimits {
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

// FaultDecision is what a projection does about a batch that failed.
type FaultDecision int

const (
	// WaitForIt tries the batch again later. Nothing is counted.
	WaitForIt FaultDecision = iota
	// NarrowIt applies fewer events at once. Nothing is counted.
	NarrowIt
	// TryAgain tries the event again at once, on a new connection. Nothing is counted.
	TryAgain
	// CountIt counts a failure of the event, and its policy decides.
	CountIt
)

// String returns the word that logs use.
func (d FaultDecision) String() string {
	switch d {
	case WaitForIt:
		return "wait"
	case NarrowIt:
		return "narrow"
	case TryAgain:
		return "try again"
	case CountIt:
		return "count"
	}
	return fmt.Sprintf("decision %d", int(d))
}

// BatchFault is a fault of a batch, or of a replay or a delivery, as FaultHistory decides about it.
type BatchFault struct {
	Class Class
	// Position is the first event of the batch; Alone reports that there is no other.
	Position int64
	Alone    bool
	// Unreachable reports that a probe on another connection, begun after the fault, failed. It writes, so it also fails on a
	// server that is read-only or has no disk space left.
	Unreachable bool
	Now         time.Time
}

// FaultHistory remembers the faults of one event that were not counted, and decides when they are the event's own. It is
// pure, and its zero value remembers nothing. Batches and replays have one each; it begins anew with a new owner of the lease.
//
// A batch of several events is narrowed uncounted, whatever the fault: what fails only above some size gets through in
// smaller batches. Of an event alone:
//
//	class           decision
//	HandlerFault    count
//	Unclear         wait while the probe fails, which also forgets the faults before; else wait, and count once
//	                FaultLimits.Faults of them were met over at least FaultLimits.Over
//	Interrupted     try again once, then count
//	MissingObject   wait, and count after FaultLimits.MissingObject
//	Infrastructure  wait
type FaultHistory struct {
	position int64
	// faults counts the Unclear ones since since.
	faults int
	since  time.Time
	// triedAgain reports that the event had its new connection.
	triedAgain bool
	// missing is when an object was found missing first, zero where none was.
	missing time.Time
}

// Decide takes in a fault and says what to do about it.
func (h *FaultHistory) Decide(limits FaultLimits, f BatchFault) FaultDecision {
	limits = limits.WithDefaults()
	switch {
	case !f.Class.MayCount():
		return WaitForIt
	case f.Class == Unclear && f.Unreachable:
		h.Forget()
		return WaitForIt
	case !f.Alone:
		return NarrowIt
	}
	if h.position != f.Position {
		*h = FaultHistory{position: f.Position}
	}
	if f.Class != MissingObject {
		h.missing = time.Time{}
	}
	switch f.Class {
	case Unclear:
		if h.faults == 0 {
			h.since = f.Now
		}
		h.faults++
		if h.faults < limits.Faults || f.Now.Sub(h.since) < limits.Over {
			return WaitForIt
		}
	case Interrupted:
		if !h.triedAgain {
			h.triedAgain = true
			return TryAgain
		}
	case MissingObject:
		if h.missing.IsZero() {
			h.missing = f.Now
		}
		if f.Now.Sub(h.missing) < limits.MissingObject {
			return WaitForIt
		}
	}
	return CountIt
}

// Forget takes in that something succeeded, or that the server was away.
func (h *FaultHistory) Forget() { *h = FaultHistory{} }

// ErrMissingObject is in the reason for which a projection waits for a table, column, function, schema or privilege that its
// handler needs.
var ErrMissingObject = errors.New("the handler needs an object or a privilege that is missing in the database")
