// Package event says what an event is: the fact that is appended, and the envelope in which it is stored.
package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/millrace-go/millrace/internal/excerpt"
)

// Event is a fact to be appended to a stream.
type Event struct {
	// Type names the kind of fact; it must not be empty. Projections select by it.
	Type string
	// Body is the fact itself, one JSON value. Empty means the JSON value null. Values are kept, bytes are not: the
	// store keeps bodies as jsonb, which drops white space, repeated members and the order of members.
	Body json.RawMessage
	// Headers carry what is not part of the fact: who asked for it, from where, a trace.
	Headers map[string]string
	// CausationID names what led to this event, usually the id of a command or of another event. Optional.
	CausationID string
	// CorrelationID is shared by all events that belong to one conversation. Optional.
	CorrelationID string
}

// New makes an event of body encoded as JSON.
func New(eventType string, body any) (Event, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return Event{}, fmt.Errorf("encode the body of event %s: %w", excerpt.Quoted(eventType), err)
	}
	return Event{Type: eventType, Body: raw}, nil
}

// Validate reports the first thing that keeps the event from being stored, or nil.
func (e Event) Validate() error {
	if e.Type == "" {
		return errors.New("event type is empty")
	}
	if err := ValidText("event type", e.Type); err != nil {
		return err
	}
	if err := ValidText("causation id", e.CausationID); err != nil {
		return err
	}
	if err := ValidText("correlation id", e.CorrelationID); err != nil {
		return err
	}
	for k, v := range e.Headers {
		if err := ValidText("header name", k); err != nil {
			return err
		}
		if err := ValidText("header "+excerpt.Of(k), v); err != nil {
			return err
		}
	}
	return validBody(e.Body)
}

func validBody(body json.RawMessage) error {
	if len(body) == 0 {
		return nil
	}
	if !json.Valid(body) {
		return errors.New("event body is not one valid JSON value")
	}
	if !utf8.Valid(body) {
		return errors.New("event body is not valid UTF-8")
	}
	return storableEscapes(body)
}

// Envelope is an event as it is stored. It is immutable: many projections may hold the same one at once, so neither
// Body nor RawHeaders may be changed.
type Envelope struct {
	// Position is the event's place in the tenant's global order, from 1, with gaps.
	Position int64
	// Stream is the id of the stream that the event belongs to.
	Stream string
	// Version is the event's place in its stream, from 1, without gaps.
	Version int64
	// Type, Body, CausationID and CorrelationID are as appended.
	Type          string
	Body          json.RawMessage
	CausationID   string
	CorrelationID string
	// RawHeaders is the JSON object of the headers, nil where there are none; the method Headers decodes it.
	RawHeaders json.RawMessage
	// Time is when the event was inserted, by the server's clock.
	Time time.Time
}

// Decode reads the body into v, as json.Unmarshal does.
func (e Envelope) Decode(v any) error {
	if err := json.Unmarshal(e.Body, v); err != nil {
		return fmt.Errorf("decode the body of %s at position %d: %w", excerpt.Of(e.Type), e.Position, err)
	}
	return nil
}

// Headers returns the headers as a map, nil where there are none.
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

// Size is about how many bytes the envelope holds, for bounds on batches and buffers.
func (e Envelope) Size() int {
	const fixed = 160
	return fixed + len(e.Stream) + len(e.Body) + len(e.RawHeaders) + len(e.CausationID) + len(e.CorrelationID)
}
