package machine

import (
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/policy"
	"github.com/millrace-go/millrace/projection"
)

// State is what a projection is doing. Working is the only state with work under way; in every other state the
// projection is at rest. A state carries the data that belong to it, and nothing else says where the projection is.
type State interface{ isState() }

type (
	// Working has one job under way. Back is the state to which the projection returns after the job, unless the job's
	// result leads to another one. Then is what follows the job.
	Working struct {
		Op   int
		Job  Job
		Back State
		Then Order
	}
	// AwaitingTail waits for the feed's first message, or for the row to be read after a wait.
	AwaitingTail struct{}
	// Idle waits for events, or for a batch to begin.
	Idle struct{}
	// Reconnecting is Idle after an interrupted attempt: the next batch gets a connection that no batch has used.
	Reconnecting struct{}
	// Failing has a counted failure whose action was not carried out yet. Retry is the delay of the next attempt, if
	// that is the action.
	Failing struct {
		Failure projection.Failure
		Retry   time.Duration
	}
	// RetryWait waits for the next attempt at an event that failed. Of the event, Failure has the position alone.
	RetryWait struct {
		Failure projection.Failure
		Until   time.Time
	}
	// OutageWait waits for a service that the handler depends on.
	OutageWait struct {
		Reason error
		Until  time.Time
	}
	// EventWait waits after a fault that was not counted, while the server answers. Replays go on.
	EventWait struct {
		Reason error
		Until  time.Time
	}
	// AtGate waits until the supervisor's gate says whether the server answers. The fault came at Since.
	AtGate struct {
		Fault *faults.Fault
		Since time.Time
	}
	// FaultWait waits after a fault of the database. No work that needs the server begins.
	FaultWait struct {
		Reason error
		Until  time.Time
	}
	// Misconfigured waits for a change of the configuration, and checks for one at Until.
	Misconfigured struct {
		Reason error
		Until  time.Time
	}
	// Unconfirmed waits for a heartbeat: the lease deadline passed without one.
	Unconfirmed struct{ Until time.Time }
	// FeedFailed waits for the feed, which cannot read the tenant's events.
	FeedFailed struct{ Reason error }
	// Halted waits for a user to resume the projection. At CheckAt the row is read, since the notification may be lost.
	Halted struct {
		Reason  error
		CheckAt time.Time
	}
	// Released has reported its position; the node releases the lease.
	Released struct{}
	// Lost has lost its lease to another owner or epoch.
	Lost struct{ Reason error }
)

// Order is what follows the job under way. A later order replaces an earlier one only if it is greater.
type Order int

const (
	// Continue begins the next job as usual.
	Continue Order = iota
	// Reload reads the row before anything else begins. A wait goes on after that.
	Reload
	// Resume reads the row and ends a wait.
	Resume
	// Release reports the position and ends.
	Release
)

// ErrUnconfirmed is why a projection waits while its node cannot be sure of its leases.
var ErrUnconfirmed = errors.New("no heartbeat of this node arrived for nearly as long as its leases last")

// until returns when a wait ends without an input. Zero means that it does not.
func until(s State) time.Time {
	switch s := s.(type) {
	case RetryWait:
		return s.Until
	case OutageWait:
		return s.Until
	case EventWait:
		return s.Until
	case FaultWait:
		return s.Until
	case Misconfigured:
		return s.Until
	case Unconfirmed:
		return s.Until
	case Halted:
		return s.CheckAt
	}
	return time.Time{}
}

// Phase is a state as status, health and metrics show it.
type Phase string

// The phases of a projection.
const (
	Starting      Phase = "starting"
	CatchUp       Phase = "catching up"
	Live          Phase = "live"
	Waiting       Phase = "waiting"
	Failed        Phase = "failed"
	MissingObject Phase = "missing object"
)

// waits reports whether the phase needs no events.
func (p Phase) waits() bool { return p != Starting && p != CatchUp && p != Live }

// phase returns the projection's phase and why it is in it.
func (m *Machine) phase() (Phase, error) {
	state := m.State
	if w, ok := state.(Working); ok {
		state = w.Back
	}
	switch st := state.(type) {
	case Released:
		return Waiting, nil
	case Lost:
		return Waiting, st.Reason
	case AwaitingTail:
		return Starting, nil
	case Failing:
		return Waiting, policy.Error(&st.Failure)
	case RetryWait:
		return Waiting, policy.Error(&st.Failure)
	case OutageWait:
		return Waiting, st.Reason
	case EventWait:
		if errors.Is(st.Reason, projection.ErrMissingObject) {
			return MissingObject, st.Reason
		}
		return Waiting, st.Reason
	case AtGate:
		return Waiting, st.Fault
	case FaultWait:
		return Waiting, st.Reason
	case Unconfirmed:
		return Waiting, ErrUnconfirmed
	case Misconfigured:
		return Failed, st.Reason
	case FeedFailed:
		return Failed, st.Reason
	case Halted:
		return Failed, st.Reason
	}
	if m.behind() {
		return CatchUp, m.Faults.Conflicts.Reason()
	}
	return Live, m.Faults.Conflicts.Reason()
}

// Decided returns why the projection waits or failed, once it is decided what follows. No function of the user is
// called with the error after that. It returns nil in other states, and while a job is under way.
func (m *Machine) Decided() (Phase, error) {
	switch m.State.(type) {
	case RetryWait, OutageWait, EventWait, AtGate, FaultWait, Misconfigured, Halted:
		return m.phase()
	}
	return "", nil
}

// behind reports whether the projection is more than one batch behind the settled mark.
func (m *Machine) behind() bool {
	return m.Tail != nil && m.Tail.Mark-m.Position > int64(m.Def.MaxEvents)
}

// Status is a projection as other parts of the runtime see it.
type Status struct {
	Phase Phase
	// Position is the position up to which the projection has handled or passed over all events. It may be ahead of the
	// checkpoint in the database by events that the projection does not select. Mark is the settled mark, as far as it
	// knows.
	Position, Mark int64
	// Reason is why the projection waits or failed, or from which projections it is kept apart.
	Reason error
	// Halted reports whether the projection waits for a user after a failure.
	Halted bool
	// Faulty reports that the reason is a fault that was counted against no event: of a read, or of the server.
	Faulty  bool
	Breaker projection.BreakerState
	// Parked counts the parked events, as far as the projection knows.
	Parked int64
	// Oldest is the time at which the oldest event was appended that the projection has neither handled nor passed
	// over. It is zero if there is no such event, and until the projection has read it.
	Oldest time.Time
}

// same reports whether two statuses are equal. Errors are compared by their texts: a user's error may not be
// comparable.
func (s Status) same(other Status) bool {
	a, b := s, other
	a.Reason, b.Reason = nil, nil
	return a == b && fmt.Sprint(s.Reason) == fmt.Sprint(other.Reason)
}

func (m *Machine) status() Status {
	phase, reason := m.phase()
	s := Status{Phase: phase, Position: m.Position, Mark: m.Sent.Status.Mark, Reason: reason, Halted: m.Lease.Halted,
		Faulty:  m.faulty(phase),
		Breaker: m.Breaker.State(), Parked: m.Lease.Parked}
	if m.Tail != nil && m.Tail.Err == nil {
		s.Mark = m.Tail.Mark
	}
	if s.Position < s.Mark {
		s.Oldest = m.oldest()
	}
	return s
}

// faulty reports whether the projection waits after a fault that was counted against no event.
func (m *Machine) faulty(phase Phase) bool {
	state := m.State
	if w, ok := state.(Working); ok {
		state = w.Back
	}
	switch state.(type) {
	case AtGate, FaultWait, EventWait:
		return phase == Waiting
	}
	return false
}

// oldest returns when the first event after the position was appended. While that is not in memory, it returns the last
// known result, or when the last event that was handled was appended.
func (m *Machine) oldest() time.Time {
	if len(m.Buffer.Events) > 0 {
		return m.Buffer.Events[0].Time
	}
	if t := m.Tail; t != nil && t.From <= m.Position {
		first := sort.Search(len(t.Events), func(i int) bool { return t.Events[i].Position > m.Position })
		if first < len(t.Events) {
			return t.Events[first].Time
		}
	}
	return m.Sent.Status.Oldest
}

// NotTaking is what Taken returns for a projection that needs none of the feed's events.
const NotTaking = 1<<63 - 1

// Taken returns the position up to which the feed's events are no longer needed.
func (m *Machine) Taken() int64 {
	if phase, _ := m.phase(); phase.waits() {
		return NotTaking
	}
	return m.Buffer.To
}

// Tail is the feed's last message: how far the tenant's events are settled, with the last of them, or why they cannot
// be read.
type Tail struct {
	Incarnation engine.Incarnation
	Mark, From  int64
	Err         error
	Events      events
}
