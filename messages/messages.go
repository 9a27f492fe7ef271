// Package messages is what actors say to each other: plain structs that nobody changes once they are sent.
package messages

import (
	"sync/atomic"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
)

// To a feed.
type (
	// Wake tells a feed that its tenant may have new events.
	Wake struct{}
	// Subscribe asks a feed to send its tenant's events to the sender. Taken is the position up to which the sender has taken
	// them, and the sender keeps it current, so that the feed can drop those events. nil means that the sender needs all.
	Subscribe struct{ Taken *atomic.Int64 }
	// Unsubscribe takes Subscribe back.
	Unsubscribe struct{}
)

// From a feed to its projections.
type (
	// TailAdvanced tells how far events are settled, and hands out the last of them: all with From < position <= Mark.
	// Every receiver gets the same slice. Incarnation is that of the server in which they were read.
	TailAdvanced struct {
		Incarnation engine.Incarnation
		Mark        int64
		From        int64
		Events      []event.Envelope
	}
	// TailDropped takes back events that were sent: they may no longer exist.
	TailDropped struct{}
	// TailFailed tells that the end of the tenant's events cannot be read before somebody mends something.
	TailFailed struct{ Err error }
)

// From the supervisor to a feed or a projection.
type (
	// Resume ends a wait: a feed's delay after a fault is over, or a user asks a projection to try again at once.
	Resume struct{}
	// ServerAnswers answers a projection's Faulted: the server can be worked with. Waited is true if it could not before; Lease
	// is the projection's lease as read since, nil if it was not read.
	ServerAnswers struct {
		Lease  *engine.Lease
		Waited bool
	}
	// Recheck asks a feed to forget everything and begin anew, unless it began in this incarnation of the server. 0 means in
	// any case.
	Recheck struct{ Incarnation engine.Incarnation }
	// Unanswered is sent to a projection when the node was restarted: its open requests get no answer. A projection that has
	// reported its end reports it again.
	Unanswered struct{}
	// Commanded reports that there are commands for the projection's dead letters. It comes from the node.
	Commanded struct{ Key engine.LeaseKey }
	// Drain asks a projection to finish the work under way and to report Drained. One that is drained reports again. It comes from
	// the node.
	Drain struct{ Key engine.LeaseKey }
	// Revalidate gives a projection its lease as the database has it. If it differs from the projection's own, the projection
	// reads it once more. It comes from the node.
	Revalidate struct {
		Key   engine.LeaseKey
		Lease engine.Lease
	}
)

// From the node to the supervisor, about one lease. Those about projections are passed on.
type (
	// Run asks for the projection of a lease to be started. It replaces the actor of an earlier lease of the row.
	Run struct{ Lease engine.Lease }
	// Retire asks for the projection to be stopped, since its lease is over.
	Retire struct{ Key engine.LeaseKey }
	// Resumed reports that the projection was resumed by a person: it tries again at once, whatever it waits for.
	Resumed struct{ Key engine.LeaseKey }
	// AllReleased answers ReleaseAll.
	AllReleased struct{}
)

// To the node.
type (
	// ReleaseAll asks the node to claim no more and to release all leases, each when its projection is drained. It answers
	// AllReleased.
	ReleaseAll struct{}
	// Drained reports that a projection is at rest, and where. The supervisor reports it for a projection without an actor.
	Drained struct{ Advance engine.Advance }
	// LeaseLost reports that a projection found its lease lost, and does nothing until it is retired. The supervisor reports it
	// when it is asked to drain a projection that it does not run.
	LeaseLost struct{ Key engine.LeaseKey }
)

// To the supervisor.
type (
	// Faulted reports a fault that is not an event's. A feed is sent Resume when it may try again, a projection ServerAnswers
	// when the server can be worked with.
	Faulted struct{ Fault *engine.Fault }
	// Recovered reports that work succeeded after a fault that was none of an event's.
	Recovered struct{}
)

// Between listener, node and supervisor.
type (
	// SessionUp tells that the session connection stands: the node is registered and listens. Again tells that there was
	// one before it, Pooled that no notices arrive.
	SessionUp struct{ Again, Pooled bool }
	// SessionLost tells that the session connection is gone.
	SessionLost struct{ Err error }
	// Beaten tells that a heartbeat arrived that was sent at At, by this process' monotonic clock.
	Beaten struct{ At time.Time }
	// Neighbours tells which other nodes are alive, when that changed.
	FleetChanged struct{ Found engine.Fleet }
	// Notified tells of a notification.
	Notified struct{ Notice engine.Notice }
	// Report asks the listener to repeat what it has told the node: SessionUp and Neighbours.
	Report struct{}
	// LeaseRequest asks the node to read a lease. Op comes back with the answer.
	LeaseRequest struct {
		Lease engine.Lease
		Op    int
	}
	// LeaseRead answers LeaseRequest.
	LeaseRead struct {
		Lease engine.Lease
		Op    int
		Err   error
	}
	// AdvanceRequest asks the node to move a checkpoint along with others'. Op comes back with the answer.
	AdvanceRequest struct {
		Advance engine.Advance
		Op      int
	}
	// Advanced answers AdvanceRequest. Moved is false if the checkpoint did not move, or if that is not known.
	Advanced struct {
		Op    int
		Moved bool
	}
)
