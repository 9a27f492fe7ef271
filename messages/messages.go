// Package messages has what actors say to each other: plain structs that do not change once they are sent. It is part
// of the engine and promises no compatibility.
package messages

import (
	"sync/atomic"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
)

// To a feed.
type (
	// Wake asks a feed to poll: its tenant may have new events. Own has those of the append that sent it, nil if they
	// have to be read.
	Wake struct{ Own *engine.Page }
	// Subscribe asks a feed to send its tenant's events to the sender. The sender keeps Taken at the position up to
	// which it has taken them, so that the feed can drop those events. nil means that the sender needs all.
	Subscribe struct{ Taken *atomic.Int64 }
	// Unsubscribe ends the sender's subscription.
	Unsubscribe struct{}
	// Recheck asks a feed to forget everything and begin anew, unless it began in this incarnation of the server. 0
	// means in any case. Gone reports that events at or below its mark are gone.
	Recheck struct {
		Incarnation engine.Incarnation
		Gone        bool
	}
)

// From a feed to its projections.
type (
	// TailAdvanced has the settled mark and the newest settled events. Every projection gets the same slice.
	TailAdvanced = engine.Tail
	// TailDropped withdraws events that were sent: they may no longer exist.
	TailDropped struct{}
	// TailFailed reports that the end of the tenant's events cannot be read until a person repairs something.
	TailFailed struct{ Err error }
)

// To the supervisor, from a feed or a projection.
type (
	// AskGate asks the gate whether the server can be reached, after a fault that no event caused. The answer is
	// ServerAnswers.
	AskGate struct{ Fault *faults.Fault }
)

// From the supervisor to a feed or a projection.
type (
	// ServerAnswers answers AskGate: the server can be reached. Waited is true if it could not be reached before. Lease
	// is the projection's lease as read since, nil if it was not read.
	ServerAnswers struct {
		Lease  *engine.Lease
		Waited bool
	}
	// Unanswered is sent to a projection when the node was restarted: its open requests get no answer. A drained
	// projection reports Drained again.
	Unanswered struct{}
)

// From the node, by way of the supervisor, about one lease.
type (
	// StartProjection asks the supervisor to start the projection of a lease. It replaces the actor of an earlier lease
	// of the row.
	StartProjection struct{ Lease engine.Lease }
	// Drain asks a projection to finish the work in progress and to report Drained. A drained one reports again.
	Drain struct{ Key engine.LeaseKey }
	// Retire asks the supervisor to stop the projection, since its lease is over.
	Retire struct{ Key engine.LeaseKey }
	// Revalidate gives a projection its lease as the database has it. If it differs from the projection's own, the
	// projection reads it once more.
	Revalidate struct {
		Key   engine.LeaseKey
		Lease engine.Lease
	}
	// CommandPending reports that there are commands for the projection's dead letters.
	CommandPending struct{ Key engine.LeaseKey }
	// Resumed reports that a user resumed the projection. The projection and its feed try again at once, whatever they
	// wait for.
	Resumed struct{ Key engine.LeaseKey }
)

// To the node, by way of the supervisor.
type (
	// Pulse asks the node to record that it makes progress.
	Pulse struct{}
	// ReleaseAll asks the node to claim no more and to release all leases, each when its projection is drained. The
	// node answers AllReleased. The operator gets it as well, carries out no further operation, and answers
	// OperationsEnded when none is in progress.
	ReleaseAll struct{}
	// AllReleased answers ReleaseAll.
	AllReleased struct{}
	// OperationsEnded answers ReleaseAll.
	OperationsEnded struct{}
	// Drained reports that nothing of a projection runs any more, and its last checkpoint. The supervisor reports it
	// for a projection without an actor.
	Drained struct{ Advance engine.Advance }
	// LeaseLost reports that a projection found its lease lost, and waits to be retired. The supervisor reports it when
	// it is asked to drain a projection that it does not run.
	LeaseLost struct{ Key engine.LeaseKey }
	// LeaseRequest asks for a lease as the database has it. Op comes back with the answer.
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
	// AdvanceRequest asks the node to advance a checkpoint along with others. Op comes back with the answer.
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

// From the listener, by way of the supervisor, to the node and the operator.
type (
	// SessionUp reports a session connection: the node is registered and listens. Again reports that there was one
	// before it.
	SessionUp struct{ Again bool }
	// HeartbeatSent reports that a heartbeat succeeded. It was sent at At, by this process' monotonic clock.
	HeartbeatSent struct{ At time.Time }
	// FleetChanged reports that nodes came or went.
	FleetChanged struct{}
	// Notified has a notification.
	Notified struct{ Notice engine.Notice }
)
