package projection

import "time"

// DeadLetter is a parked event of a projection. It refers to the event and copies no payload. In JSON, names are in
// lower camel case, times are RFC 3339, and empty optional fields are left out.
type DeadLetter struct {
	// ID is the number of the dead letter, and Projection is the projection that has it.
	ID         int64 `json:"id"`
	Projection ID    `json:"projection"`
	// Position, Stream, Version and Type are the event's.
	Position int64  `json:"position"`
	Stream   string `json:"stream"`
	Version  int64  `json:"version"`
	Type     string `json:"type"`
	// BlockedByStream reports that the event did not fail, but was parked after an earlier event of its stream.
	BlockedByStream bool            `json:"blockedByStream,omitzero"`
	State           DeadLetterState `json:"state"`
	// Error is the error of the last failure, and Stack its stack if it was a panic. Attempts counts the failures,
	// those of replays included. Replays counts the failed replays.
	Error    string `json:"error"`
	Stack    string `json:"stack,omitempty"`
	Attempts int    `json:"attempts"`
	Replays  int    `json:"replays"`
	// FirstFailedAt and LastFailedAt are when the event failed. EndedAt is when it was resolved or discarded. They are
	// by the clock of the server, or of the machine that has the file.
	FirstFailedAt time.Time `json:"firstFailedAt,omitzero"`
	LastFailedAt  time.Time `json:"lastFailedAt,omitzero"`
	EndedAt       time.Time `json:"endedAt,omitzero"`
	// OutOfOrder reports that its last replay was refused, since the projection has handled later events of the stream.
	// It is not replayed automatically any more. See DeadLetterFilter.OutOfOrder.
	OutOfOrder bool `json:"outOfOrder,omitzero"`
}

// DeadLetterState is the state of a dead letter.
type DeadLetterState string

const (
	// DeadLetterParked means that it waits for a command, or for the automatic replay.
	DeadLetterParked DeadLetterState = "parked"
	// DeadLetterReplaying means that it is being replayed, or that its replay was interrupted: the next owner of the
	// lease continues it. It may be replayed and discarded like a parked one.
	DeadLetterReplaying DeadLetterState = "replaying"
	// DeadLetterResolved means that its event was applied by a replay.
	DeadLetterResolved DeadLetterState = "resolved"
	// DeadLetterDiscarded means that its event will never be applied. A command discarded it, or its handler requested
	// to skip it in a replay.
	DeadLetterDiscarded DeadLetterState = "discarded"
)

// DeadLetterFilter selects dead letters of a projection: those that match every field that is set. Replay, Discard and
// Purge refuse a filter without any field, so that a forgotten filter does not affect everything.
type DeadLetterFilter struct {
	// All selects all dead letters. No other field may be set beside it. List and Count do not need it.
	All bool
	// IDs selects by number. An empty slice that is not nil selects none.
	IDs []int64
	// Stream and Type select by the event's stream and type. Type is the type as it is stored, also if the store has a
	// registry of package eventtype.
	Stream string
	Type   string
	// Error selects by a part of the error's text.
	Error string
	// OutOfOrder is for Replay alone. It lets Replay apply events although the projection has handled later events of
	// their streams, as it does after ActionPark. Such an event overwrites what the later ones have written, unless the
	// handler does not mind the order. Without it, Replay refuses them. Rebuild the projection instead if the order
	// matters.
	OutOfOrder bool
}

// ReplayPolicy sets when dead letters are replayed automatically. They are replayed one after another, in the order in
// which they became due. So a dead letter that fails again and again does not delay the others. A parked stream is
// replayed whole, and waits if one of its events fails. Events that wait for an earlier event of their stream are not
// replayed by themselves. An event is left for a command, with DeadLetter.OutOfOrder, if the projection has handled
// later events of its stream, unless Projection.AnyOrder is set. The zero value turns the automatic replay off.
type ReplayPolicy struct {
	// Interval is how long after its last failure an event is replayed, and how often the dead letters are checked. 0
	// turns the automatic replay off.
	Interval time.Duration
	// MaxReplays is how many replays of an event may fail before it is left for a command. Default 10. NoLimit turns
	// the limit off.
	MaxReplays int
	// Factor multiplies the interval after each failed replay of the event, from 1 to 100. Default 2.
	Factor float64
	// Cap is the longest interval. At most 365 days. Default 1 h, or Interval if that is longer.
	Cap time.Duration
	// Error selects events by a part of the error's text. Default: all.
	Error string
}
