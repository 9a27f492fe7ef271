// Package messages is what actors say to each other: plain structs that nobody changes once they are sent.
package messages

import (
	"sync/atomic"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
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
	// Confirm sends a projection its lease as the database has it. If it differs from the projection's own, the projection
	// reads it once more.
	Confirm struct{ Lease engine.Lease }
	// Doubt asks a projection to read its lease anew, and to go on from there.
	Doubt struct{}
	// Unanswered is sent to a projection when the node was restarted: its open requests get no answer.
	Unanswered struct{}
	// Wanted tells a projection whether it is wanted to pause.
	Wanted struct{ Paused bool }
	// Commanded tells a projection that there is something to do with its dead letters.
	Commanded struct{}
	// Drain asks a projection to finish what it is at and to report Drained, and the node to claim no more and to report
	// Left.
	Drain struct{}
)

// To the supervisor.
type (
	// Faulted reports a fault that is not an event's. A feed is sent Resume when it may try again, a projection ServerAnswers
	// when the server can be worked with.
	Faulted struct{ Fault *engine.Fault }
	// Recovered reports that work succeeded after a fault that was none of an event's.
	Recovered struct{}
	// Ended reports that a projection's actor ends because its lease is gone. Reason is nil where it was given back.
	Ended struct {
		Lease  engine.Lease
		Reason error
	}
	// Drained reports that a projection is at rest, and where.
	Drained struct {
		ID      projection.ID
		Advance engine.Advance
	}
	// Left reports that the node, asked to drain, claims nothing any more.
	Left struct{}
	// Claimed reports leases that the node has got.
	Claimed struct{ Leases []engine.Lease }
	// Owned reports all leases that the node holds, after their projections may have missed something.
	Owned struct{ Leases []engine.Lease }
	// WantedStates reports what is wanted of the projections of Rows: States has those that are not merely to run. Of those in
	// Asked somebody has just asked to run, to pause or to stop.
	WantedStates struct {
		Rows   []int32
		States map[int32]engine.Orders
		Asked  map[int32]bool
	}
	// Doubted reports leases that the database says are not this node's any more.
	Doubted struct{ Rows []int32 }
	// Surrender asks for leases to be given back, each when the batch of its projection that is under way has ended.
	Surrender struct{ Rows []int32 }
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
	Neighbours struct{ Found engine.Neighbours }
	// Notified tells of a notification.
	Notified struct{ Notice engine.Notice }
	// Reconcile asks the node to look for leases to claim.
	Reconcile struct{}
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
