package machine

import (
	"time"

	"github.com/millrace-go/millrace/internal/engine/faults"
)

// FaultDecision is what a projection does after a batch that failed. Its text is shown in logs.
type FaultDecision string

const (
	// WaitForIt tries the batch again later. Nothing is counted.
	WaitForIt FaultDecision = "wait"
	// NarrowIt applies fewer events at once. Nothing is counted.
	NarrowIt FaultDecision = "narrow"
	// TryAgain tries the event again at once, on a new connection. Nothing is counted.
	TryAgain FaultDecision = "try again"
	// CountIt counts a failure of the event, and the policy decides.
	CountIt FaultDecision = "count"
)

// BatchFault is a fault of a batch, a replay or a delivery, as FaultHistory.Decide takes it.
type BatchFault struct {
	Class faults.Class
	// Position is the first event of the batch; Alone reports that there is no other.
	Position int64
	Alone    bool
	// Unreachable reports that a probe on another connection, begun after the fault, failed. It writes, so it also
	// fails on a server that is read-only or has no disk space left.
	Unreachable bool
	Now         time.Time
}

// FaultHistory remembers the faults of one event that were not counted, and decides when they are the event's own. It
// is pure, and its zero value remembers nothing. Batches and replays have one each; it begins anew with a new owner of
// the lease.
//
// A batch of several events is narrowed and not counted, whatever the fault: a batch that fails only above some size
// succeeds in smaller ones. For a single event:
//
//	class           decision
//	Handler         count
//	Unclear         wait while the probe fails, which also forgets the faults before; else wait, and count once
//	                Limits.Faults of them were met over at least Limits.Over
//	Interrupted     try again once, then count
//	MissingObject   wait, and count after Limits.MissingObject
//	Infrastructure  wait
type FaultHistory struct {
	position int64
	// faults counts the Unclear ones since since.
	since  time.Time
	faults int32
	// triedAgain reports whether the event was tried on a new connection.
	triedAgain bool
	// missing is when an object was first found missing, zero if none was.
	missing time.Time
}

// Decide records a fault and returns what to do about it. The defaults of limits must be set.
func (h *FaultHistory) Decide(limits faults.Limits, f BatchFault) FaultDecision {
	switch {
	case !f.Class.MayCount():
		return WaitForIt
	case f.Class == faults.Unclear && f.Unreachable:
		h.Forget()
		return WaitForIt
	case !f.Alone:
		return NarrowIt
	}
	if h.position != f.Position {
		*h = FaultHistory{position: f.Position}
	}
	if f.Class != faults.MissingObject {
		h.missing = time.Time{}
	}
	switch f.Class {
	case faults.Unclear:
		if h.faults == 0 {
			h.since = f.Now
		}
		h.faults++
		if int(h.faults) < limits.Faults || f.Now.Sub(h.since) < limits.Over {
			return WaitForIt
		}
	case faults.Interrupted:
		if !h.triedAgain {
			h.triedAgain = true
			return TryAgain
		}
	case faults.MissingObject:
		if h.missing.IsZero() {
			h.missing = f.Now
		}
		if f.Now.Sub(h.missing) < limits.MissingObject {
			return WaitForIt
		}
	}
	return CountIt
}

// Forget is called when something succeeded, or when the server was away.
func (h *FaultHistory) Forget() { *h = FaultHistory{} }
