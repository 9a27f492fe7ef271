package machine

import (
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
)

// step is one call of Step.
type step struct {
	*Machine
	now time.Time
	// order is what follows the job that has ended. jitter is a random number from 0 to 1.
	order   Order
	jitter  float64
	applied int
	out     output
}

// usualEffects is how many effects most steps have at most.
const usualEffects = 4

// Step handles one input, decides what is next, and returns the effects for the shell. It changes only m itself: what a
// copy of m refers to stays the same.
func (m *Machine) Step(in Input, now time.Time) []Effect {
	s := &step{Machine: m, now: now, out: output{effects: make([]Effect, 0, usualEffects)}}
	switch m.State.(type) {
	case Released, Lost:
		s.repeat(in)
		return s.out.effects
	}
	s.take(in)
	s.next()
	s.finish()
	return s.out.effects
}

// repeat reports the end once more to a node that lost the first report.
func (s *step) repeat(in Input) {
	switch in.(type) {
	case Drain, Revalidate, Unanswered:
		if _, lost := s.State.(Lost); lost {
			s.out.do(LeaseLost{})
			return
		}
		s.endDrain()
	}
}

// endDrain reports the position, with which the node releases the lease.
func (s *step) endDrain() {
	s.out.do(Drained{
		Advance: engine.Advance{Lease: s.Lease, To: s.Position, Begun: s.Crash.Begun, Replaying: s.Replays.Unfinished},
	})
	s.State = Released{}
}

// startIfAllowed begins a job, unless the order after the last one forbids it. A failure is always recorded. Before a
// reload no batch and no command begins. Before a release nothing else does.
func (s *step) startIfAllowed(job Job) {
	switch job.(type) {
	case Record:
	case Apply, Command:
		if s.order != Continue {
			return
		}
	case Load:
		s.order = Continue
	default:
		if s.order == Release {
			return
		}
	}
	s.Sent.Op++
	s.State = Working{Op: s.Sent.Op, Job: job, Back: s.State, Then: s.order}
	s.order = Continue
	s.out.do(Start{Op: s.Sent.Op, Job: job})
}

// after has order follow the job under way, or follow at once if there is none.
func (s *step) after(order Order) {
	if w, ok := s.State.(Working); ok {
		w.Then = max(w.Then, order)
		s.State = w
		return
	}
	s.order = max(s.order, order)
}

// abandon stops waiting for the job under way. Its result is ignored when it comes.
func (s *step) abandon() {
	if w, ok := s.State.(Working); ok {
		s.State, s.order = w.Back, max(s.order, w.Then)
	}
}

// abandonAsk stops waiting for the FailureHandler, whose answer is no longer needed. A release waits for its end.
func (s *step) abandonAsk() {
	if w, works := s.State.(Working); works && w.Then != Release {
		if _, asks := w.Job.(Ask); asks {
			s.abandon()
			s.out.do(Cancel{})
		}
	}
}

func (s *step) take(in Input) {
	switch in := in.(type) {
	case Started:
		s.onStarted(in)
	case LeaseDeadline:
		s.LeaseDeadline = in.At
	case TailAdvanced:
		s.Tail = &in.Tail
		if in.Tail.Incarnation != s.Lease.Incarnation {
			s.after(Reload)
		}
	case TailFailed:
		s.Tail = &Tail{Err: in.Err}
		if s.Lease.Halted {
			s.Tail = nil // the feed reports again after a user resumed the projection
		}
	case TailDropped:
		s.Tail = nil
		s.after(Reload)
	case Revalidate:
		s.revalidate(in.Lease)
	case Unanswered:
		switch s.under().(type) {
		case Load, Advance:
			s.abandon()
			s.after(Reload)
		}
	case ServerAnswers:
		s.onServerAnswers(in)
	case Resumed:
		s.onResumed()
	case CommandPending:
		s.Replays.Seen++
		s.Replays.Commands = CommandsOpen
	case Drain:
		switch s.under().(type) {
		case nil:
		case Ask:
			s.out.do(Cancel{}) // the lease is released when the FailureHandler has ended
		default:
			s.out.do(Yield{})
		}
		s.after(Release)
	case Done:
		if w, ok := s.State.(Working); ok && w.Op == in.Op {
			s.State, s.order, s.jitter = w.Back, w.Then, in.Jitter
			s.onDone(w.Job, in.Result)
		}
	}
}

func (s *step) onStarted(in Started) {
	s.takeOver(s.Lease)
	s.out.do(Subscribe{})
	if s.Def.Replay.Interval > 0 {
		s.Replays.DueAt = s.now
	}
	s.out.log(zap.InfoLevel, "projection started", zap.Int64("checkpoint", s.Lease.Checkpoint))
	if in.Stale {
		s.after(Reload)
	}
}

// onResumed ends a wait. A job that is no part of a wait continues.
func (s *step) onResumed() {
	switch phase, _ := s.phase(); phase {
	case Waiting, MissingObject, Failed:
		s.abandonAsk()
		if s.Tail != nil && s.Tail.Err != nil {
			s.Tail = nil
			s.out.do(Subscribe{})
		}
		s.after(Resume)
	}
}

// finish drops the events of a projection that waits for long, arms the one timer for the earliest deadline, and
// publishes the status if it changed.
func (s *step) finish() {
	if s.waitsLong(s.now) {
		s.forget()
	}
	if at := s.deadline(s.now); !at.Equal(s.Sent.Armed) {
		s.Sent.Armed = at
		s.out.do(Arm{At: at})
	}
	if status := s.status(); s.applied > 0 || !status.same(s.Sent.Status) {
		s.Sent.Status = status
		s.out.do(Publish{Status: status, Applied: s.applied})
	}
}
