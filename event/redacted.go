package event

import (
	"errors"
	"time"

	"github.com/millrace-go/millrace/internal/redact"
)

// ErrRedacted is in the *DecodeError for an event whose body was removed, by EraseStream or RedactEvents of a store.
var ErrRedacted = errors.New("the event is redacted")

// ErrNotFound is returned by EraseStream for a stream that has neither events nor aliases, and by RedactEvents for a
// position without an event.
var ErrNotFound = errors.New("there is no such event")

// IncludeRedacted makes a typed handler handle redacted events too, with the zero value as their bodies. Without it,
// the handler is not called for them. Their Envelope.Redacted is true.
var IncludeRedacted = DecodeOption{redacted: true}

// Redacted reports whether the event's body, headers, causation and correlation were removed. Its position, stream,
// version, type and time are as before. Its body is the JSON string "redacted".
func (e Envelope) Redacted() bool { return redact.Is(e.RawHeaders) }

// Erasure is the record of a call of EraseStream or RedactEvents.
type Erasure struct {
	// ID is the number of the erasure.
	ID int64 `json:"id"`
	// Stream is the stream whose events were redacted. It is empty for RedactEvents, which has Positions.
	Stream    string  `json:"stream,omitempty"`
	Positions []int64 `json:"positions,omitempty"`
	// Reason is what the caller gave as the reason.
	Reason string `json:"reason"`
	// RequestedAt and EndedAt are by the clock of the server, or of the machine that has the file. EndedAt is the zero
	// time while it runs, and if its process died: then nothing was redacted.
	RequestedAt time.Time `json:"requestedAt"`
	EndedAt     time.Time `json:"endedAt,omitzero"`
	// Events is how many events it redacted. Those that were redacted before do not count.
	Events int64 `json:"events"`
	// Types are the types of all events that it selected.
	Types []string `json:"types,omitempty"`
	// Applied are the projections whose checkpoints had passed redacted events. Events that they had parked or
	// discarded do not count. If they handle these types, their read models may have what was in the events. Delivered
	// are those of them that deliver: what they sent is out of the reach of the store. Both are sorted.
	Applied   []string `json:"applied,omitempty"`
	Delivered []string `json:"delivered,omitempty"`
}
