package machine

import (
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// adopt takes over the row as the database has it.
func (m *Machine) adopt(row engine.Lease) {
	crashed := m.Crash.CutOff != 0 && row.Incarnation != m.Crash.CutOff
	counted := engine.Begun{Position: row.CrashPosition, Attempt: row.CrashAttempts}
	if counted.Attempt != 0 && counted == m.Crash.Begun && !crashed {
		row.CrashAttempts-- // neither the process nor the server ended at it
	}
	events := m.Crash.Events
	m.Crash.CutOff, m.Crash.Events = 0, 0
	if crashed {
		// One of the events that were under way may have crashed the server. An attempt that was counted stays counted.
		m.Crash = Crash{Quarantine: max(int32(m.Def.MaxEvents), events)}
		m.Replays.Unfinished = 0
	}
	if w, waits := m.State.(RetryWait); waits && row.AttemptsAt(w.Failure.Event.Position) != w.Failure.Attempt {
		m.State = Idle{} // a user resumed the projection, and attempts are counted anew
	}
	if m.Replays.Commands == NoCommands && row.HasCommands {
		m.Replays.Commands = CommandsOpen
	} else if !row.HasCommands {
		m.Replays.Commands = NoCommands
	}
	m.Row, m.Position, m.Replays.Parked = row, row.Checkpoint, nil
	m.Row.SetParked(row.Parked)
	m.Buffer = Buffer{To: row.Checkpoint, average: m.Buffer.average}
	if row.Quarantined() {
		m.Crash.Quarantine = max(m.Crash.Quarantine, int32(m.Def.LargestBatch()))
	}
	if row.FailingPosition > row.Checkpoint || m.Crash.Quarantine > 0 {
		m.Sizer.Alone()
	}
}

// outdated reports whether the row may have been read before the projection's last write. The gate reads the rows of
// all projections while some still work.
func (m *Machine) outdated(row engine.Lease) bool {
	return row.Checkpoint < m.Row.Checkpoint || row.AttemptsAt(m.Row.FailingPosition) < m.Row.Attempts
}

// progress records that the checkpoint moved, and that no event up to it is failing any more.
func (m *Machine) progress(to int64) {
	if to < m.Row.Checkpoint {
		panic("machine: the checkpoint moves back")
	}
	m.checkpoint(to)
	m.Position = to
	m.Row.FailingPosition, m.Row.Attempts, m.Row.CrashCount = 0, 0, 0
	m.Crash.Begun = engine.Begun{}
	m.Buffer = m.Buffer.passed(to)
}

// checkpoint records the checkpoint. A share whose events are all handled up to it may become whole, and reads without
// a filter.
func (m *Machine) checkpoint(position int64) {
	m.Row.Checkpoint = position
	m.Row.Share = m.Row.Share.After(position)
}

// passOver moves the position over events that do not concern the projection.
func (m *Machine) passOver() {
	m.Position = m.Buffer.To
	m.Faults.succeeded()
}

// halt makes the projection wait for a user.
func (m *Machine) halt(reason error, now time.Time) {
	m.Row.Halted, m.Row.Failed = true, reason.Error()
	m.Window = engine.FailureWindow{}
	m.State = Halted{Reason: reason, CheckAt: now.Add(checkEvery)}
}
