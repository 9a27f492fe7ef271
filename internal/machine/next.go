package machine

import (
	"errors"
	"time"

	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// next decides which job begins next, if any. No other function does, and no job is under way when it does.
func (s *step) next() {
	switch s.State.(type) {
	case Working, Lost:
		return
	}
	if s.order == Release {
		s.endDrain()
		return
	}
	if s.order == Resume {
		s.endWait()
	}
	if s.waitsForServer() {
		return
	}
	if s.order != Continue {
		s.startIfAllowed(Load{Commands: s.Replays.Seen})
		return
	}
	s.Replays.endBackoff(s.now)
	s.Faults.Conflicts = s.Faults.Conflicts.At(s.now)
	waited := !until(s.State).IsZero()
	runs := s.restState(s.now)
	if s.waitsLong(s.now) {
		s.forget() // before a job that begins in the wait
	}
	if s.haltIfRestored() || s.writeReason() {
		return
	}
	s.advance() // also while commands follow one another without a pause
	if s.mayReplay(s.now) && !(runs && s.Replays.batchTurn(s.now)) {
		s.command()
		return
	}
	if runs && s.under() == nil {
		s.batch(waited)
		s.advance() // it may have passed over events
	}
	if s.mayReplay(s.now) {
		s.command()
	}
}

// waitsForServer reports whether nothing may begin, since the projection waits for the server or its configuration. At
// the end of such a wait it orders a reload: only the database knows how far the last batch came.
func (s *step) waitsForServer() bool {
	switch st := s.State.(type) {
	case AtGate:
		return true
	case FaultWait:
		if s.now.Before(st.Until) {
			return true
		}
	case EventWait, Misconfigured:
		if s.now.Before(until(st)) {
			return false
		}
	case Halted:
		if s.now.Before(st.CheckAt) {
			return false
		}
		s.State = Halted{Reason: st.Reason, CheckAt: s.now.Add(checkEvery)}
		s.order = max(s.order, Reload)
		return false
	default:
		return false
	}
	s.State, s.order = AwaitingTail{}, max(s.order, Reload)
	return false
}

// writeReason writes into the database that the projection waits for a person, or no longer does. If that fails, the
// next read of the row shows the difference.
func (s *step) writeReason() bool {
	if s.Lease.Halted {
		return false // The user who resumes the projection takes that back.
	}
	reason := s.Lease.Failed
	switch phase, why := s.phase(); phase {
	case Failed:
		reason = why.Error()
		if reason == "" {
			reason = projection.ErrFailed.Error()
		}
	case Live, CatchUp:
		reason = ""
	}
	if reason == s.Lease.Failed {
		return false
	}
	s.Lease.Failed = reason
	s.startIfAllowed(WriteReason{Reason: reason})
	return true
}

// haltIfRestored halts a projection whose tenant lost events that the projection has handled.
func (s *step) haltIfRestored() bool {
	if s.Lease.Halted || s.Tail == nil || !errors.Is(s.Tail.Err, tenancy.ErrRestored) {
		return false
	}
	s.startIfAllowed(Halt{Reason: s.Tail.Err})
	return true
}

// advance lets the checkpoint follow the position over events that do not concern the projection.
func (s *step) advance() {
	if _, idle := s.State.(Idle); !idle {
		return // also while a job is under way
	}
	atRest := s.Tail != nil && s.Tail.Err == nil && s.Position >= s.Tail.Mark
	switch {
	case s.Position <= s.Lease.Checkpoint && (s.Lease.CrashCount == 0 || !atRest):
		s.AdvanceAt = time.Time{}
	case s.AdvanceAt.IsZero():
		s.AdvanceAt = s.now.Add(s.AdvanceEvery - s.now.Sub(s.Start)%s.AdvanceEvery)
	case !s.now.Before(s.AdvanceAt):
		s.AdvanceAt = time.Time{}
		s.startIfAllowed(Advance{To: s.Position})
	}
}
