package machine

import (
	"errors"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// holdEvents is how long a wait may be in which a projection holds events in memory. The feed does not ask a projection
// that waits to let go of its events.
const holdEvents = 500 * time.Millisecond

// forget drops the events that are in memory. They are read again when they are needed.
func (m *Machine) forget() {
	m.dropBuffer()
	m.Tail = m.Tail.dropped()
}

// dropBuffer drops the events of the buffer. The status goes on with the time of the oldest.
func (m *Machine) dropBuffer() {
	m.Sent.Status.Oldest = m.oldest()
	m.Buffer = Buffer{To: m.Position, average: m.Buffer.average}
}

// waitsLong reports whether the projection waits for so long, or for a person, that it should hold no events.
func (m *Machine) waitsLong(now time.Time) bool {
	switch m.State.(type) {
	case AtGate, FaultWait, Misconfigured, FeedFailed, Halted:
		return true
	case RetryWait, OutageWait, EventWait:
		return until(m.State).Sub(now) > holdEvents
	}
	return false
}

// restState finds the state at rest that follows from the row, the tail and the time. It reports whether a batch may
// begin in it.
func (m *Machine) restState(now time.Time) (runs bool) {
	switch m.State.(type) {
	case Misconfigured:
		return false
	case RetryWait, OutageWait, EventWait:
		if !m.Lease.Halted && now.Before(until(m.State)) {
			return false
		}
	}
	switch {
	case m.Lease.Halted:
		if _, halted := m.State.(Halted); !halted {
			m.State = Halted{Reason: errors.New(m.Lease.Failed), CheckAt: now.Add(checkEvery)}
		}
		m.FailureWindow = engine.FailureWindow{}
	case m.Tail == nil:
		m.State = AwaitingTail{}
	case m.Tail.Err != nil:
		m.State = FeedFailed{Reason: m.Tail.Err}
	case m.Position < m.Tail.Mark && !m.confirmed(now):
		if st, waits := m.State.(Unconfirmed); !waits || !now.Before(st.Until) {
			m.State = Unconfirmed{Until: now.Add(m.HeartbeatInterval)}
		}
	case m.Position < m.Tail.Mark:
		if _, fresh := m.State.(Reconnecting); !fresh {
			m.State = Idle{}
		}
		return true
	default:
		m.idle(now)
	}
	return false
}

// idle records that nothing is left below the mark.
func (m *Machine) idle(now time.Time) {
	m.State, m.Tail, m.Crash.Quarantine = Idle{}, m.Tail.dropped(), 0
	if !m.mayReplay(now) {
		m.Faults.endStreaks()
	}
}

// endWait leaves a state that waits for a time, a person or the server.
func (m *Machine) endWait() {
	switch m.State.(type) {
	case Failing, RetryWait, OutageWait, EventWait, AtGate, FaultWait, Misconfigured, Unconfirmed, FeedFailed, Halted:
		m.State = AwaitingTail{}
	}
}

// under returns the job under way, nil if there is none.
func (m *Machine) under() Job {
	if w, ok := m.State.(Working); ok {
		return w.Job
	}
	return nil
}

// confirmed reports whether the node may trust its leases.
func (m *Machine) confirmed(now time.Time) bool { return now.Before(m.LeaseDeadline) }

// deadline returns the earliest time at which something is due without an input. Zero means none: a job ends with Done.
func (m *Machine) deadline(now time.Time) (at time.Time) {
	switch m.State.(type) {
	case Working, AtGate, Released, Lost:
		return at
	}
	candidates := []time.Time{until(m.State), m.AdvanceAt, m.Faults.Conflicts.Until()}
	due := m.Lease.Parked > 0 && !m.Replays.DueAt.IsZero()
	if due || m.Replays.Commands != NoCommands {
		candidates = append(candidates, m.Replays.BackoffUntil)
		if due {
			candidates = append(candidates, m.Replays.DueAt)
		}
		if !m.confirmed(now) {
			candidates = append(candidates, now.Add(m.HeartbeatInterval))
		}
	}
	for _, t := range candidates {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at
}
