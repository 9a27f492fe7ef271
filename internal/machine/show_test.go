package machine

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// name returns the name that traces and the table of transitions use: the type's, and of Working that of its job.
func name(v any) string {
	if w, works := v.(Working); works {
		v = w.Job
	}
	words := regexp.MustCompile("[A-Z]+[a-z]*").FindAllString(reflect.TypeOf(v).Name(), -1)
	return strings.ToLower(strings.Join(words, "-"))
}

func (w *stage) show(e Effect) string {
	switch e := e.(type) {
	case Start:
		return strings.TrimSpace(fmt.Sprintf("start %s %s", name(e.Job), showJob(e.Job)))
	case Arm:
		if e.At.IsZero() {
			return "disarm"
		}
		return fmt.Sprintf("arm +%v", e.At.Sub(w.now))
	case Publish:
		line := fmt.Sprintf("publish %q %d/%d", e.Status.Phase, e.Status.Position, e.Status.Mark)
		if e.Applied > 0 {
			line += fmt.Sprintf(" applied=%d", e.Applied)
		}
		if e.Status.Breaker != "" && e.Status.Breaker != projection.BreakerClosed {
			line += fmt.Sprintf(" breaker=%s", e.Status.Breaker)
		}
		if e.Status.Reason != nil {
			line += fmt.Sprintf(": %v", e.Status.Reason)
		}
		return line
	case Drained:
		return fmt.Sprintf("drained %d..%d begun=%d/%d letter=%d", e.Advance.Lease.Checkpoint, e.Advance.To,
			e.Advance.Begun.Position, e.Advance.Begun.Attempt, e.Advance.Replaying)
	case Subscribe:
		if e.Recheck != 0 {
			return fmt.Sprintf("subscribe recheck=%d", e.Recheck)
		}
	case Log:
		return fmt.Sprintf("log %s: %s", e.Level, e.Message)
	}
	return name(e)
}

func showJob(j Job) string {
	switch j := j.(type) {
	case Apply:
		line := ""
		if j.Run.Reads() {
			line += " reads"
		}
		if j.Run.Lease.Crashing() {
			line += " crashing"
		}
		return strings.TrimSpace(line)
	case Record:
		return fmt.Sprintf("%d attempt=%d", j.Failure.Event.Position, j.Failure.Attempt)
	case Note:
		return fmt.Sprintf("%d attempt=%d: %v", j.Failure.Event.Position, j.Failure.Attempt, j.Failure.Err)
	case WriteReason:
		return fmt.Sprintf("%q", j.Reason)
	case Ask:
		return fmt.Sprintf("%d attempt=%d", j.Failure.Event.Position, j.Failure.Attempt)
	case Move:
		return fmt.Sprintf("%d: %s", j.Failure.Event.Position, j.Action)
	case Halt:
		return fmt.Sprint(j.Reason)
	case Advance:
		return fmt.Sprintf("to=%d", j.To)
	}
	return ""
}

func positions(list events) (all []int64) {
	for _, e := range list {
		all = append(all, e.Position)
	}
	return all
}

func showBatch(b engine.Batch) string {
	s := fmt.Sprintf("%v to=%d", positions(b.Events), b.To)
	if len(b.BlockedByStream) > 0 {
		s += fmt.Sprintf(" blocked=%v", positions(b.BlockedByStream))
	}
	if b.Fresh {
		s += " fresh"
	}
	if len(b.Apart) > 0 {
		s += fmt.Sprintf(" apart=%v", b.Apart)
	}
	return s
}

func showStep(step any) string {
	switch s := step.(type) {
	case ReadPage:
		return fmt.Sprintf("read %d..%d limit=%d", s.Range.After, s.Range.UpTo, s.Range.Limit)
	case CountFailed:
		return "count-failed"
	case ListParked:
		return fmt.Sprintf("list-parked %d", s.Most)
	case FindParked:
		return fmt.Sprintf("find-parked %v", s.Streams)
	case BeginAttempt:
		return fmt.Sprintf("begin-attempt %d attempt=%d", s.Attempt.Position, s.Attempt.Attempt)
	case ApplyBatch:
		if s.Prefetch != nil {
			ahead := s.Prefetch.Range
			return fmt.Sprintf("apply %s prefetch=%d..%d", showBatch(s.Batch), ahead.After, ahead.UpTo)
		}
		return "apply " + showBatch(s.Batch)
	case FindCommand:
		return fmt.Sprintf("find-command discards=%v", s.Discards)
	case BeginReplay:
		return fmt.Sprintf("begin-replay command=%d letter=%d", s.Command, s.Unfinished)
	case ReadEvent:
		return fmt.Sprintf("read-event %d", s.Range.UpTo)
	case ApplyReplay:
		return "apply-replay " + showBatch(s.Batch)
	case RecordFailedReplay:
		return fmt.Sprintf("record-failed-replay letter=%d attempt=%d action=%s halt=%v", s.Replay.DeadLetter, s.Attempt,
			s.Action, s.Halt)
	}
	return name(step)
}
