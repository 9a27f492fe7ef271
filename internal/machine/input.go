package machine

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
)

// Input is what happens to a projection.
type Input interface{ isInput() }

type (
	// Started is the first input. Stale is true if the row may have changed since it was read.
	Started struct{ Stale bool }
	// LeaseDeadline is until when the node may trust its leases. The shell gives it before another input if it has
	// changed.
	LeaseDeadline struct{ At time.Time }
	// TailAdvanced says how far events are settled, with the last of them.
	TailAdvanced struct{ Tail Tail }
	// TailFailed says that the end of the tenant's events cannot be read until something is repaired.
	TailFailed struct{ Err error }
	// TailDropped withdraws events that may no longer exist.
	TailDropped struct{}
	// Revalidate has the row as the database has it. It may be older than the projection's last write.
	Revalidate struct{ Lease engine.Lease }
	// Unanswered says that open requests to the node get no answer, since its actor was restarted. A report of the end
	// may be lost, too.
	Unanswered struct{}
	// ServerAnswers says that the server answers. Waited is true if it did not before: then Lease is the row as read
	// since, nil if it was not read. Jitter is a random number from 0 to 1.
	ServerAnswers struct {
		Lease  *engine.Lease
		Waited bool
		Jitter float64
	}
	// Resumed says that a user wants the projection to try again at once, whatever it waits for.
	Resumed struct{}
	// CommandPending says that there is a new command for dead letters.
	CommandPending struct{}
	// Tick says that the time of the last Arm has come.
	Tick struct{}
	// Drain asks for the lease to be released after the job under way.
	Drain struct{}
	// Done is the end of a job. Jitter is a random number from 0 to 1.
	Done struct {
		Op     int
		Result Result
		Jitter float64
	}
)

// Effect is what the shell does.
type Effect interface{ isEffect() }

type (
	// Start begins a job.
	Start struct {
		Op  int
		Job Job
	}
	// Yield asks the job under way to stop where it can do so in order.
	Yield struct{}
	// CutShort ends the delivery under way: another node may hold the lease, and no fence holds back what a handler
	// sends.
	CutShort struct{}
	// Cancel ends the job under way, whose result is not waited for.
	Cancel struct{}
	// Arm sets the one timer. A zero time stops it.
	Arm struct{ At time.Time }
	// Publish shows the status to the rest of the runtime. Applied counts the events applied since the last one.
	Publish struct {
		Status  Status
		Applied int
	}
	// Subscribe asks the feed for its tail. A Recheck that is not zero is the server's incarnation: a feed that knows
	// another one begins anew.
	Subscribe struct{ Recheck engine.Incarnation }
	// AskGate asks the supervisor's gate for ServerAnswers, after Fault.
	AskGate struct{ Fault *faults.Fault }
	// Drained reports the position; the node releases the lease with it.
	Drained struct{ Advance engine.Advance }
	// LeaseLost reports that another owner holds the lease.
	LeaseLost struct{}
	// Log is a line for the log. Event is what an observer gets, a struct of package observe, nil if it gets nothing.
	Log struct {
		Level   zapcore.Level
		Message string
		Fields  []zap.Field
		Event   any
	}
)
