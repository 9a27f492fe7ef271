// Package event defines events: the facts that programs append to streams, and the envelopes in which stores return
// them.
//
// The body of an event usually has a Go type of its own, which names its event type:
//
//	type OrderPlaced struct {
//		Amount string `json:"amount"`
//	}
//
//	func (OrderPlaced) EventType() string { return "OrderPlaced" }
//
// New makes an Event of such a value, which a store appends. As decodes the value from an Envelope; the function On of
// the store's package does so for a handler. An append also has an Expected: the state in which the stream must be.
package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/redact"
	"github.com/millrace-go/millrace/internal/usererror"
	"github.com/millrace-go/millrace/internal/valid"
)

// Event is a fact that is appended to a stream. New and Untyped create one; the other fields may be set afterwards.
type Event struct {
	// Type names the kind of fact. It must not be empty. Projections select events by it.
	Type string
	// Body is the fact itself, one JSON value. An empty Body is stored as null. PostgreSQL keeps bodies as jsonb, which
	// keeps values and not bytes: it drops white space, duplicate members and the order of members. A file keeps the
	// bytes.
	Body json.RawMessage
	// Headers carry what is not part of the fact, such as a user, a source or a trace.
	Headers map[string]string
	// CausationID is the id of what led to this event, usually of a command or of another event. Optional. If it is
	// empty, an append in a handler of single events sets it: see CausedBy.
	CausationID string
	// CorrelationID is shared by all events of one conversation. Optional. If it is empty, an append in a handler of
	// single events or with WithCorrelation sets it.
	CorrelationID string
	// Time is when another store inserted the event, if this is a copy of it. It must be from the year 1 to the
	// beginning of the last day of 9999, is kept in microseconds, and may be later than now. Default: the time of the
	// append, by the clock of the server, or of the machine that has the file. The lag of a projection is the age of an
	// event by this time, and 0 while the time is in the future. A projection that begins at a time (projection.Start)
	// begins at the first position whose event has that time or a later one, and handles all events that follow.
	Time time.Time

	err error // why the body could not be encoded
	// redacted are the headers of a redacted event, in place of Headers.
	redacted json.RawMessage
}

// Untyped returns an event of the given type, for programs without a Go type for its body. The body is encoded as JSON;
// a json.RawMessage is used as it is. Like New, it leaves an encoding error to the append.
func Untyped(eventType string, body any) Event {
	if raw, ok := body.(json.RawMessage); ok {
		return Event{Type: eventType, Body: raw}
	}
	raw, err := encode(body)
	return Event{Type: eventType, Body: raw, err: err}
}

// encode returns a body as JSON. Methods of the body may panic.
func encode(body any) (raw []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%T: a method panicked: %s", body, usererror.PanicText(r))
		}
	}()
	return json.Marshal(body)
}

// RawHeaders returns the headers as they are stored, a JSON object, or nil if there are none.
func (e Event) RawHeaders() (json.RawMessage, error) {
	if len(e.Headers) == 0 || e.redacted != nil {
		return e.redacted, nil
	}
	raw, err := json.Marshal(e.Headers)
	if err != nil {
		return nil, err
	}
	return raw, valid.Printed("headers", raw, valid.MaxPrinted)
}

// Validate returns the first reason why the event cannot be stored, but for headers that RawHeaders finds too long.
// Every append calls both before it writes anything.
func (e Event) Validate() error {
	if e.err != nil {
		return fmt.Errorf("encode the body of event %s: %w", excerpt.Quoted(e.Type), e.err)
	}
	if e.Type == "" {
		return errors.New("event type is empty")
	}
	if err := valid.Text("event type", e.Type); err != nil {
		return err
	}
	if err := valid.Text("causation id", e.CausationID); err != nil {
		return err
	}
	if err := valid.Text("correlation id", e.CorrelationID); err != nil {
		return err
	}
	if !e.Time.Equal(valid.Time(e.Time)) {
		return fmt.Errorf("event time is not from year 1 to 9999-12-31T00:00:00Z: %s",
			e.Time.UTC().Format(time.RFC3339Nano))
	}
	if err := e.validateRedacted(); err != nil {
		return err
	}
	for k, v := range e.Headers {
		if err := valid.Text("header name", k); err != nil {
			return err
		}
		if err := valid.Text("header "+excerpt.Of(k), v); err != nil {
			return err
		}
	}
	if len(e.Body) == 0 {
		return nil
	}
	return valid.JSON("event body", e.Body)
}

// validateRedacted returns an error unless both stores can keep the headers of a redacted event, and recognize them.
func (e Event) validateRedacted() error {
	if e.redacted == nil {
		return nil
	}
	if err := valid.JSON("headers", e.redacted); err != nil {
		return err
	}
	if !redact.Only(e.redacted) {
		return errors.New("headers of a redacted event have other members")
	}
	return nil
}

// Envelope is an event as it is stored. It is immutable: many projections may hold the same Envelope at once, so
// neither Body nor RawHeaders may be changed. In JSON, body and headers are values, not texts.
type Envelope struct {
	// Position is the event's position in the tenant's global order. Positions begin at 1 and have gaps.
	Position int64 `json:"position"`
	// Stream is the id of the stream that the event belongs to.
	Stream string `json:"stream"`
	// Version is the event's number in its stream. Versions begin at 1 and have no gaps.
	Version int64 `json:"version"`
	// Part numbers the events, from 1 on, into which an upcaster splits a stored event (see package eventtype). They
	// have one position and one version. It is 0 for any other event.
	Part int `json:"part,omitempty"`
	// Type, Body, CausationID and CorrelationID are as appended. CausedBy says what they are if the append did not set
	// them.
	Type          string          `json:"type"`
	Body          json.RawMessage `json:"body"`
	CausationID   string          `json:"causationId,omitempty"`
	CorrelationID string          `json:"correlationId,omitempty"`
	// RawHeaders is the JSON object of the headers, nil if there are none. Headers decodes it.
	RawHeaders json.RawMessage `json:"headers,omitempty"`
	// Time is when the event was inserted, by the clock of the server, or of the machine that has the file, unless the
	// append set Event.Time. Another program may have inserted any time. Times before year 1 are the zero time, and
	// those after 9999 the last day of 9999, so that JSON can be made of every envelope.
	Time time.Time `json:"time"`
	// Unreadable is why the store could not read the body and the headers, an *UnreadableError. It is nil in every
	// event that a handler gets. Readers of events get it as an error, too.
	Unreadable error `json:"-"`
}

// UnreadableError is returned for an event whose body or headers a store cannot read: they are damaged, or another
// program has inserted a body that PostgreSQL cannot print. Later events can be read.
type UnreadableError struct {
	Position int64
	Stream   string
	Version  int64
	Type     string
	Err      error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("read the body of event %d (%s of stream %s, version %d): %v", e.Position, excerpt.Of(e.Type),
		excerpt.Quoted(e.Stream), e.Version, e.Err)
}

// Unwrap returns the error of the store.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Headers returns the headers as a map, nil if there are none.
func (e Envelope) Headers() map[string]string {
	if len(e.RawHeaders) == 0 {
		return nil
	}
	var headers map[string]string
	if json.Unmarshal(e.RawHeaders, &headers) != nil {
		return nil
	}
	return headers
}

// Event returns an event that can be appended elsewhere as a copy of this one. The copy of a redacted event is
// redacted. Position and version are those of the append, and so is the time, unless the caller sets Event.Time.
// Headers that are not an object of strings, which other programs may insert, are left out.
func (e Envelope) Event() Event {
	of := Event{
		Type: e.Type, Body: e.Body, Headers: e.Headers(), CausationID: e.CausationID, CorrelationID: e.CorrelationID,
	}
	if e.Redacted() {
		of.Headers, of.redacted = nil, e.RawHeaders
	}
	return of
}

// Size returns roughly how many bytes the envelope takes. Batches and buffers are bounded by it.
func (e Envelope) Size() int {
	const fixed = 160
	return fixed + len(e.Stream) + len(e.Body) + len(e.RawHeaders) + len(e.CausationID) + len(e.CorrelationID)
}
