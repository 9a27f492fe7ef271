package projection

import (
	"time"
)

// DeadLetter is an event that was put aside: it refers to the event and copies no payload.
type DeadLetter struct {
	// ID names the dead letter; Projection is whose it is.
	ID         int64
	Projection ID
	Position   int64
	Stream     string
	Version    int64
	Type       string
	// Behind tells why: the event did not fail, but waits behind one of its stream. Else it failed.
	BlockedByStream bool
	State           DeadLetterState
	// Error is what happened when the event failed last, Stack where, if it was a panic. Attempts counts its failures, replays
	// that failed included, and Replays those alone.
	Error    string
	Stack    string
	Attempts int
	Replays  int
	// FirstFailedAt and LastFailedAt, and EndedAt, when it was resolved or discarded, are by the server's clock.
	FirstFailedAt time.Time
	LastFailedAt  time.Time
	EndedAt       time.Time
}

// DeadLetterState is what has become of a dead letter.
type DeadLetterState string

const (
	// DeadLetterParked waits for somebody, or for the automatic replayer.
	DeadLetterParked DeadLetterState = "parked"
	// DeadLetterReplaying is being replayed, or was when its owner ended: the next owner goes on with it. It may be replayed and
	// discarded as if it were parked.
	DeadLetterReplaying DeadLetterState = "replaying"
	// DeadLetterResolved was replayed: its event was applied.
	DeadLetterResolved DeadLetterState = "resolved"
	// DeadLetterDiscarded was given up, by a command or by its handler, which asked to skip it on a replay: its event will never be
	// applied.
	DeadLetterDiscarded DeadLetterState = "discarded"
)

// DeadLetterFilter selects dead letters of a projection: those that fit each field that is set. What replays, discards or purges
// is refused where none is, so that a filter which somebody forgot to fill in does not give up everything.
type DeadLetterFilter struct {
	// All selects all, and excludes the others. To list and to count it need not be set.
	All bool
	// IDs are those of the letters. Empty and not nil it selects none.
	IDs []int64
	// Stream and Type are the events'.
	Stream string
	Type   string
	// Error is a part of the error's text.
	Error string
}

// ReplayPolicy has the dead letters of a projection replayed by themselves, one after another, the one that has been due for
// longest first: so one that keeps failing does not delay the others. A parked stream is replayed whole, and waits with the
// rest where one of its events fails. Events that are parked behind others are not looked at for themselves. The zero value
// is off.
type ReplayPolicy struct {
	// Interval is how long after its last failure an event is replayed, and how often it is looked for such. 0 turns the
	// replayer off.
	Interval time.Duration
	// MaxReplays is how many replays of an event may fail before it waits for a person. Default 10; negative means any number.
	MaxReplays int
	// Factor is what the interval grows by with each replay of the event that failed, up to Cap. Default 2; 1 keeps it fixed.
	Factor float64
	// Cap is the longest interval. Default 1 h, or Interval where that is longer.
	Cap time.Duration
	// Error is a part of the error's text: only such events are replayed. Default: all.
	Error string
}
