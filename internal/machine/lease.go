package machine

import (
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// adopt replaces the lease by the row that was read, and what was remembered of the old one.
func (m *Machine) adopt(lease engine.Lease) {
	crashed := m.Crash.CutOff != 0 && lease.Incarnation != m.Crash.CutOff
	counted := engine.Begun{Position: lease.CrashPosition, Attempt: lease.CrashAttempts}
	if counted.Attempt != 0 && counted == m.Crash.Begun && !crashed {
		lease.CrashAttempts-- // neither the process nor the server ended at it
	}
	events := m.Crash.Events
	m.Crash.CutOff, m.Crash.Events = 0, 0
	if crashed {
		// One of the events that were under way may have crashed the server. An attempt that was counted stays counted.
		m.Crash = Crash{Quarantine: max(int32(m.Def.MaxEvents), events)}
		m.Replays.Unfinished = 0
	}
	if w, waits := m.State.(RetryWait); waits && lease.AttemptsAt(w.Failure.Event.Position) != w.Failure.Attempt {
		m.State = Idle{} // a user resumed the projection, and attempts are counted anew
	}
	if m.Replays.Commands == NoCommands && lease.HasCommands {
		m.Replays.Commands = CommandsOpen
	} else if !lease.HasCommands {
		m.Replays.Commands = NoCommands
	}
	m.Lease, m.Position, m.Replays.Parked = lease, lease.Checkpoint, nil
	m.Lease.SetParked(lease.Parked)
	m.Buffer = Buffer{To: lease.Checkpoint, average: m.Buffer.average}
	if lease.Quarantined() {
		m.Crash.Quarantine = max(m.Crash.Quarantine, int32(m.Def.LargestBatch()))
	}
	if lease.FailingPosition > lease.Checkpoint || m.Crash.Quarantine > 0 {
		m.Sizer.Alone()
	}
}

// outdated reports whether the row may have been read before the projection's last write. The gate reads the rows of
// all projections while some still work.
func (m *Machine) outdated(lease engine.Lease) bool {
	return lease.Checkpoint < m.Lease.Checkpoint || lease.AttemptsAt(m.Lease.FailingPosition) < m.Lease.Attempts
}

// progress records that the checkpoint moved, and that no event up to it is failing any more.
func (m *Machine) progress(to int64) {
	if to < m.Lease.Checkpoint {
		panic("machine: the checkpoint moves back")
	}
	m.checkpoint(to)
	m.Position = to
	m.Lease.FailingPosition, m.Lease.Attempts, m.Lease.CrashCount = 0, 0, 0
	m.Crash.Begun = engine.Begun{}
	m.Buffer = m.Buffer.passed(to)
}

// checkpoint records the checkpoint. A share whose events are all handled up to it may become whole, and reads without
// a filter.
func (m *Machine) checkpoint(position int64) {
	m.Lease.Checkpoint = position
	m.Lease.Share = m.Lease.Share.After(position)
}

// passOver moves the position over events that do not concern the projection.
func (m *Machine) passOver() {
	m.Position = m.Buffer.To
	m.Faults.endStreaks()
}

// halt makes the projection wait for a user.
func (m *Machine) halt(reason error, now time.Time) {
	m.Lease.Halted, m.Lease.Failed = true, reason.Error()
	m.FailureWindow = engine.FailureWindow{}
	m.State = Halted{Reason: reason, CheckAt: now.Add(checkEvery)}
}
