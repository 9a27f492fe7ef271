package eventlog

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/upcast"
	"github.com/millrace-go/millrace/internal/valid"
)

// Append is a valid append. Its events are columns, with one element for each event.
type Append struct {
	Stream   string
	Expected event.Expected
	// Key is the idempotency key, if Keyed.
	Key   string
	Keyed bool
	// Headers, Causations and Correlations are empty where an event has none. Headers are JSON objects.
	Types, Bodies, Headers, Causations, Correlations []string
	// Times are nil if all events get the time of the append, and so is the time of an event that does.
	Times []*time.Time
}

// NewAppend checks the arguments of an append to a store that takes these types. Its errors name the event.
func NewAppend(types *upcast.Graph, stream string, expected event.Expected, events []event.Event) (Append, error) {
	if err := valid.ID("the stream's id", stream); err != nil {
		return Append{}, err
	}
	if len(events) == 0 {
		return Append{}, errors.New("events must not be empty")
	}
	if err := expected.Validate(); err != nil {
		return Append{}, err
	}
	n := len(events)
	texts := make([]string, 5*n)
	a := Append{Stream: stream, Expected: expected, Types: texts[:n], Bodies: texts[n : 2*n], Headers: texts[2*n : 3*n],
		Causations: texts[3*n : 4*n], Correlations: texts[4*n:]}
	a.Key, a.Keyed = expected.Key()
	for i, e := range events {
		if err := e.Validate(); err != nil {
			return Append{}, fmt.Errorf("event %d: %w", i, err)
		}
		if err := types.Registered(e.Type); err != nil {
			return Append{}, fmt.Errorf("event %d: %w", i, err)
		}
		headers, err := e.RawHeaders()
		if err != nil {
			return Append{}, fmt.Errorf("event %d: %w", i, err)
		}
		body := string(valid.Body(e.Body))
		a.Types[i], a.Bodies[i], a.Headers[i], a.Causations[i], a.Correlations[i] = e.Type, body, string(headers),
			e.CausationID, e.CorrelationID
		if !e.Time.IsZero() {
			if a.Times == nil {
				a.Times = make([]*time.Time, n)
			}
			at := e.Time.UTC()
			a.Times[i] = &at
		}
	}
	return a, nil
}

// Conflict returns the error of an append whose stream is at another version.
func (a Append) Conflict(actual int64) error {
	return &event.VersionConflictError{Stream: a.Stream, Expected: a.Expected, Actual: actual}
}

// UsedFor returns an error if the append's key was used before for another stream.
func (a Append) UsedFor(stream string) error {
	if stream == a.Stream {
		return nil
	}
	return fmt.Errorf("key %s was used for stream %s: %w", excerpt.Quoted(a.Key), excerpt.Quoted(stream),
		event.ErrKeyReused)
}
