package machine

import (
	"errors"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
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
		s.load()
		return
	}
	s.endBackoff()
	s.Faults.Conflicts = s.Faults.Conflicts.At(s.now)
	runs := s.restState()
	if s.haltIfRestored() || s.publicize() {
		return
	}
	s.advance() // also while commands follow one another without a pause
	if s.mayReplay() && !(runs && s.batchTurn()) {
		s.command()
		return
	}
	if runs && s.under() == nil {
		s.batch()
		s.advance() // it may have passed over events
	}
	if s.mayReplay() {
		s.command()
	}
}

// endWait leaves a state that waits for a time, a person or the server.
func (s *step) endWait() {
	switch s.State.(type) {
	case Failing, RetryWait, OutageWait, EventWait, AtGate, FaultWait, Misconfigured, Unconfirmed, FeedFailed, Halted:
		s.State = AwaitingTail{}
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

// holdTail is how long a projection that waits holds the feed's events at most. The feed frees them at that age, too.
const holdTail = 5 * time.Second

// restState finds the state at rest that follows from the row, the tail and the time. It reports whether a batch may
// begin in it.
func (s *step) restState() (runs bool) {
	switch s.State.(type) {
	case Misconfigured:
		return false
	case RetryWait, OutageWait, EventWait:
		if wait := until(s.State).Sub(s.now); !s.Row.Halted && wait > 0 {
			if wait > holdTail {
				s.Tail = s.Tail.dropped()
			}
			return false
		}
	}
	switch {
	case s.Row.Halted:
		if _, halted := s.State.(Halted); !halted {
			s.State = Halted{Reason: errors.New(s.Row.Failed), CheckAt: s.now.Add(checkEvery)}
		}
		s.Tail, s.Window = s.Tail.dropped(), engine.FailureWindow{}
	case s.Tail == nil:
		s.State = AwaitingTail{}
	case s.Tail.Err != nil:
		s.State = FeedFailed{Reason: s.Tail.Err}
	case s.Position < s.Tail.Mark && !s.confirmed():
		if st, waits := s.State.(Unconfirmed); !waits || !s.now.Before(st.Until) {
			s.State = Unconfirmed{Until: s.now.Add(s.HeartbeatInterval)}
		}
	case s.Position < s.Tail.Mark:
		if _, fresh := s.State.(Reconnecting); !fresh {
			s.State = Idle{}
		}
		return true
	default:
		s.idle()
	}
	return false
}

// idle records that nothing is left below the mark.
func (s *step) idle() {
	s.State, s.Tail, s.Crash.Quarantine = Idle{}, s.Tail.dropped(), 0
	if !s.mayReplay() {
		s.recordSuccess()
	}
}

// recordSuccess records that something succeeded.
func (s *step) recordSuccess() {
	s.Faults.InARow, s.Faults.Misconfigured, s.Faults.Changes = 0, 0, 0
}

// confirmed reports whether the node may trust its leases.
func (s *step) confirmed() bool { return s.now.Before(s.LeaseDeadline) }

// publicize writes into the database that the projection waits for a person, or no longer does. If that fails, the next
// read of the row shows the difference.
func (s *step) publicize() bool {
	if s.Row.Halted {
		return false // The user who resumes the projection takes that back.
	}
	reason := s.Row.Failed
	switch phase, why := s.phase(); phase {
	case Failed:
		reason = why.Error()
		if reason == "" {
			reason = projection.ErrFailed.Error()
		}
	case Live, CatchUp:
		reason = ""
	}
	if reason == s.Row.Failed {
		return false
	}
	s.Row.Failed = reason
	s.start(Publicize{Reason: reason})
	return true
}

// haltIfRestored halts a projection whose tenant lost events that the projection has handled.
func (s *step) haltIfRestored() bool {
	if s.Row.Halted || s.Tail == nil || !errors.Is(s.Tail.Err, tenancy.ErrRestored) {
		return false
	}
	s.start(Halt{Reason: s.Tail.Err})
	return true
}

// advance lets the checkpoint follow the position over events that do not concern the projection.
func (s *step) advance() {
	if _, idle := s.State.(Idle); !idle {
		return // also while a job is under way
	}
	atRest := s.Tail != nil && s.Tail.Err == nil && s.Position >= s.Tail.Mark
	switch {
	case s.Position <= s.Row.Checkpoint && (s.Row.CrashCount == 0 || !atRest):
		s.AdvanceAt = time.Time{}
	case s.AdvanceAt.IsZero():
		s.AdvanceAt = s.now.Add(s.AdvanceEvery - s.now.Sub(s.Start)%s.AdvanceEvery)
	case !s.now.Before(s.AdvanceAt):
		s.AdvanceAt = time.Time{}
		s.start(Advance{To: s.Position})
	}
}
