package engine

import "fmt"

// Class is the first question asked of every error: whose fault is it?
type Class int

const (
	// Infrastructure faults are retried for ever and never counted against an event: waits for another session's lock,
	// deadlocks, serialization failures, and all errors of statements of millrace itself.
	Infrastructure Class = iota
	// LeaseLost ends the actor; another owner goes on.
	LeaseLost
	// HandlerFault is counted for the event, and a policy decides what becomes of that.
	HandlerFault
	// Configuration faults stop the projection until somebody mends them.
	Configuration
	// Unclear faults do not show by the error alone whether the server or the event is at fault: a lost connection, lack of
	// resources, an internal error. FaultHistory decides about them, by a probe and by repetition.
	Unclear
	// Interrupted faults may pass with the moment or the connection: a cancelled statement, a stale statement cache. The
	// event is tried once more on a new connection, and is at fault if they recur.
	Interrupted
	// MissingObject faults are about a table, column, function, schema or privilege that the handler needs and that does not
	// exist. The projection waits for it, for a bounded time.
	MissingObject
)

// MayCount reports whether a fault of this class can end up as a failure of its event.
func (c Class) MayCount() bool {
	return c == HandlerFault || c == Unclear || c == Interrupted || c == MissingObject
}

// String is the word that logs and status use.
func (c Class) String() string {
	switch c {
	case Infrastructure:
		return "infrastructure"
	case LeaseLost:
		return "lease lost"
	case HandlerFault:
		return "handler"
	case Configuration:
		return "configuration"
	case Unclear:
		return "unclear"
	case Interrupted:
		return "interrupted"
	case MissingObject:
		return "missing object"
	}
	return fmt.Sprintf("class %d", int(c))
}

// Fault is a classified error of a projection's batch.
type Fault struct {
	Class Class
	// Position is the event that failed where the handler could say so, else 0.
	Position int64
	// Stack is where a panic happened, else empty.
	Stack string
	// Probe reports that the server itself may be the cause: only a probe on another connection can tell.
	Probe bool
	// Unreachable reports that such a probe failed, too: nothing can be done before the server is back.
	Unreachable bool
	// Returned reports whether the handler returned an error of its own, not one of its batch's connection.
	Returned bool
	// Err is what happened.
	Err error
}

func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns what happened.
func (f *Fault) Unwrap() error { return f.Err }
