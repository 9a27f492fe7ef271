package machine

import (
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
)

// Job is one piece of work. The shell does it and answers with Done.
type Job interface{ isJob() }

type (
	// Load reads the lease's row. Commands is how many notifications of commands were known when it began. The result
	// is Loaded.
	Load struct{ Commands int }
	// Apply runs a batch or a delivery by BatchRun's steps. The result is RunResult.
	Apply struct{ Run BatchRun }
	// Record writes a counted failure, outside of the batch that was rolled back. Retry is the delay of the next
	// attempt, if the event is tried again. The result is Recorded.
	Record struct {
		Failure projection.Failure
		Retry   time.Duration
	}
	// Note writes why the projection waits at an event, so that other nodes can show it, without counting an attempt.
	// Fault is the fault that it waits after, nil for an outage of a service that the handler depends on. Retry is how
	// long it waits for such a service.
	Note struct {
		Failure projection.Failure
		Fault   *faults.Fault
		Retry   time.Duration
	}
	// WriteReason writes why the projection waits for a person, or with an empty reason that it no longer does.
	WriteReason struct{ Reason string }
	// Ask calls the user's FailureHandler. The result is Answer.
	Ask Failing
	// Move parks or skips an event and moves the checkpoint over it.
	Move struct {
		Failure projection.Failure
		Action  projection.Action
	}
	// Halt stops the projection until a user resumes it. Event is the event at which it stops, nil if there is none.
	Halt struct {
		Reason error
		Event  *event.Envelope
	}
	// Advance moves the checkpoint over events that do not concern the projection. The result is Advanced.
	Advance struct{ To int64 }
	// Command carries out the next command on dead letters, or a part of it, by CommandRun's steps. The result is
	// ReplayResult.
	Command struct{ Replay CommandRun }
)

// Result is how a job ended: Faulted or OK, Loaded, Recorded, Answer, Advanced, RunResult or ReplayResult.
type Result interface{ isResult() }

type (
	// Faulted is the result of a job of any kind that ended with a fault.
	Faulted struct{ Fault *faults.Fault }
	// OK is the result of a job without data.
	OK struct{}
	// Loaded is the row as the database has it.
	Loaded struct{ Lease engine.Lease }
	// Recorded is when the event failed first, by the server's clock.
	Recorded struct{ First time.Time }
	// Answer is the action that the FailureHandler returned, nil if it returned none.
	Answer struct{ Action *projection.Action }
	// Advanced reports whether the checkpoint moved.
	Advanced struct{ Moved bool }
)
