package engine

import (
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// Replay is one replay of a dead letter that was begun.
type Replay struct {
	Command  int64
	Letter   int64
	Position int64
	Stream   string
	// Begun counts the replays of it that were begun without a word on how they ended, this one included.
	Begun int
	// Attempts counts the failures of its event before this replay.
	Attempts int
}

// replaysBegun is how many owners in a row may end at the replay of a dead letter before it is given up.
const replaysBegun = 2

// Deadly tells that so many owners ended at the replay that it is not to be tried again in this command.
func (r Replay) Deadly() bool { return r.Begun > replaysBegun }

// Failure is that of the replay's event, without the event's body.
func (r Replay) Failure(id projection.ID, err error, stack string) *projection.Failure {
	if at, ok := err.(*projection.EventError); ok {
		err = at.Err // the position is said anyway
	}
	return &projection.Failure{Projection: id, Event: event.Envelope{Position: r.Position, Stream: r.Stream}, Attempt: r.Attempts + 1, Err: err, Stack: stack}
}
