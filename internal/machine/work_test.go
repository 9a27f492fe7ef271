package machine

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
)

// finish ends the job under way as a database would. Sometimes the job has no effect, and sometimes its answer is lost.
func (l *life) finish() {
	s := l.open
	l.open = nil
	var result Result
	switch job := s.Job.(type) {
	case Apply:
		result = l.run(job.Run)
	case Command:
		result = l.replay(job.Replay)
	default:
		fault := l.refuse()
		if fault == nil {
			result = l.work(job)
		}
		if l.faults && l.d.one(20) {
			fault = l.lost()
		}
		if fault != nil {
			result = Faulted{fault}
		}
	}
	l.step(Done{Op: s.Op, Result: result, Jitter: l.d.Float64()})
}

// lost is the fault of an answer that did not arrive.
func (l *life) lost() *faults.Fault {
	return &faults.Fault{
		Class: []faults.Class{faults.Infrastructure, faults.Unclear}[l.d.below(2)], Unreachable: l.d.one(2),
		Probe: l.d.one(4), Err: errors.New("lost"),
	}
}

// refuse returns the fault of a statement that did nothing, nil if there is none.
func (l *life) refuse() *faults.Fault {
	switch {
	case l.lease.Epoch != l.db.row.Epoch:
		return &faults.Fault{Class: faults.LeaseLost, Err: projection.ErrLeaseLost}
	case l.faults && l.d.one(20):
		return l.lost()
	case l.faults && l.d.one(50):
		return &faults.Fault{Class: faults.Configuration, Err: errors.New("misconfigured")}
	}
	return nil
}

// fenced returns the fault of a write under a row that is not the database's.
func (l *life) fenced() *faults.Fault {
	switch {
	case l.lease.Incarnation != l.db.row.Incarnation:
		return &faults.Fault{Class: faults.Infrastructure, Err: event.ErrIncarnationChanged}
	case l.lease.Checkpoint != l.db.row.Checkpoint:
		return &faults.Fault{Class: faults.LeaseLost, Err: projection.ErrLeaseLost}
	}
	return nil
}

// work does a job, except batches and commands.
func (l *life) work(job Job) Result {
	db := &l.db
	switch job := job.(type) {
	case Load:
		return Loaded{l.row()}
	case Ask:
		return Answer{
			[]*projection.Action{nil, ptr(projection.ActionRetry), ptr(projection.ActionPark),
				ptr(projection.ActionParkStream)}[l.d.below(4)],
		}
	case Record:
		f := job.Failure
		db.row.FailingPosition, db.row.Attempts, db.row.CrashAttempts = f.Event.Position, f.Attempt, 0
		db.attempts[f.Event.Position] = f.Attempt
		return Recorded{l.now}
	case WriteReason:
		db.row.Failed = job.Reason
	case Move:
		if f := l.fenced(); f != nil {
			return Faulted{f}
		}
		pos := job.Failure.Event.Position
		if job.Action == projection.ActionSkip {
			db.skipped[pos] = true
		} else {
			if most := l.m.Def.MaxParked; most >= 0 && l.failed() >= most {
				l.t.Errorf("event %d is parked, and %d that failed are parked already", pos, l.failed())
			}
			l.park(pos)
			if job.Action == projection.ActionParkStream {
				db.parked[job.Failure.Event.Stream] = true
			}
		}
		l.moveTo(pos)
		db.row.CrashAttempts = 0
	case Halt:
		db.row.Halted, db.row.Failed = true, job.Reason.Error()
	case Advance:
		if l.fenced() != nil {
			return Advanced{}
		}
		l.moveTo(job.To)
		return Advanced{Moved: true}
	}
	return OK{}
}

func ptr(a projection.Action) *projection.Action { return &a }

func (l *life) moveTo(to int64) {
	if to < l.db.row.Checkpoint {
		l.t.Errorf("the checkpoint went back from %d to %d", l.db.row.Checkpoint, to)
	}
	if to > l.mark() {
		l.t.Errorf("the checkpoint went to %d, beyond the mark %d", to, l.mark())
	}
	l.db.row.Checkpoint, l.db.row.CrashCount, l.db.row.Attempts, l.db.row.FailingPosition = to, 0, 0, 0
}

func (l *life) park(pos int64) {
	l.db.letters[pos] = &engine.Replay{DeadLetter: pos, Position: pos, Attempts: l.db.attempts[pos]}
}

// failed counts the parked events that failed.
func (l *life) failed() int64 { return int64(len(l.db.letters) - len(l.db.blocked)) }

// unpark removes a dead letter. After the last one of a parked stream, the stream is released.
func (l *life) unpark(pos int64) {
	delete(l.db.letters, pos)
	delete(l.db.blocked, pos)
	stream := l.db.events[pos-1].Stream
	for other := range l.db.letters {
		if l.db.events[other-1].Stream == stream {
			return
		}
	}
	delete(l.db.parked, stream)
}

func (l *life) concerned(after, to int64) (list events) {
	for _, e := range l.db.events[after:to] {
		if e.Type == "a" {
			list = append(list, e)
		}
	}
	return list
}

// read returns all events of a range. What lies beyond the mark may still change.
func (l *life) read(r engine.ReadRange) engine.Page {
	if r.UpTo > l.mark() {
		l.t.Errorf("a read up to %d, beyond the mark %d", r.UpTo, l.mark())
		r.UpTo = l.mark()
	}
	page := engine.Page{Events: l.concerned(r.After, r.UpTo), To: r.UpTo}
	if len(page.Events) > r.Limit {
		page.Events = page.Events[:r.Limit]
		page.To = page.Events[r.Limit-1].Position
	}
	return page
}

// run takes the steps of a batch.
func (l *life) run(run BatchRun) Result {
	if l.faults && l.d.one(3) { // the feed reads on while the run waits for its slot
		l.append()
		newest := l.newest()
		run, l.tail = run.Renewed(newest), true
	}
	r, step := run.Begin()
	for {
		if end, ends := step.(EndRun); ends {
			return end.Result
		}
		if f := l.refuse(); f != nil {
			return r.Faulted(f)
		}
		switch s := step.(type) {
		case ReadPage:
			if l.d.one(3) { // the node has no room for more
				s.Range.Limit = min(s.Range.Limit, s.Least)
			}
			r, step = r.Read(l.read(s.Range))
		case CountFailed:
			r, step = r.Counted(l.failed())
		case ListParked:
			r, step = r.Listed(slices.Sorted(maps.Keys(l.db.parked)))
		case BeginAttempt:
			l.db.row.CrashPosition, l.db.row.CrashAttempts = s.Attempt.Position, s.Attempt.Attempt
			if l.faults && l.d.one(20) {
				return r.Faulted(l.lost())
			}
			r, step = r.Begun()
		case ApplyBatch:
			result := l.apply(r, s)
			result.NoRoom = l.d.one(3)
			return result
		}
	}
}

// apply commits a batch, or a part of it, or says which event failed.
func (l *life) apply(r BatchRun, s ApplyBatch) RunResult {
	l.check(s.Batch)
	if f := l.fenced(); f != nil {
		return r.Applied(RunResult{Fault: f})
	}
	var next *engine.Page
	if s.Prefetch != nil && !s.More && l.d.one(2) {
		page := l.read(s.Prefetch.Range)
		next = &page
	}
	if l.down && len(s.Batch.Events) > 0 && l.m.Breaker != nil && !l.d.one(5) {
		return r.Applied(RunResult{
			Fault: &faults.Fault{Class: faults.Handler, Err: errors.New("down")}, Outage: true, Next: next,
		})
	}
	if l.faults && l.d.one(15) {
		class := []faults.Class{faults.Infrastructure, faults.Unclear, faults.Interrupted,
			faults.MissingObject}[l.d.below(4)]
		return r.Applied(RunResult{Fault: &faults.Fault{Class: class, Err: errors.New("fault")}, Next: next})
	}
	var fault *faults.Fault
	leased := l.d.one(3) && len(s.Batch.BlockedByStream) == 0
	to, handled := s.Batch.To, int64(0)
	for _, e := range s.Batch.Events {
		if l.db.bad[e.Position] > 0 {
			if len(s.Batch.Events) == 1 {
				l.db.bad[e.Position]--
			}
			fault = &faults.Fault{Class: faults.Handler, Err: errors.New("bad")}
			if l.d.one(2) {
				fault.Position = e.Position
			}
			if !leased || handled == 0 {
				return r.Applied(RunResult{Fault: fault, Next: next})
			}
			to = handled
			break
		}
		handled = e.Position
	}
	for _, e := range s.Batch.Events {
		if e.Position <= to {
			l.db.applied[e.Position]++
		}
	}
	for _, e := range s.Batch.BlockedByStream {
		l.park(e.Position)
		l.db.parked[e.Stream], l.db.blocked[e.Position] = true, true
	}
	if most := l.m.Def.MaxBlocked; most >= 0 && len(s.Batch.BlockedByStream) > 0 && int64(len(l.db.blocked)) > most {
		l.t.Errorf("%d events of parked streams are parked", len(l.db.blocked))
	}
	l.moveTo(to)
	if l.faults && l.d.one(30) {
		return r.Applied(RunResult{Fault: l.lost()})
	}
	if fault != nil {
		return r.Applied(RunResult{Partial: &engine.PartialResult{To: to, Err: fault}, Fault: fault, Next: next})
	}
	return r.Applied(RunResult{Next: next, Took: time.Duration(to%150) * time.Millisecond})
}

// check checks that a batch has exactly the next events, and parks those of parked streams.
func (l *life) check(b engine.Batch) {
	if b.To > l.mark() {
		l.t.Errorf("batch up to %d beyond the mark %d", b.To, l.mark())
		return
	}
	if l.lease.Checkpoint != l.db.row.Checkpoint {
		return // the fence refuses it
	}
	next := slices.Concat(b.Events, b.BlockedByStream)
	slices.SortFunc(next, func(a, b event.Envelope) int { return int(a.Position - b.Position) })
	for _, e := range next {
		if parks := slices.ContainsFunc(b.BlockedByStream,
			func(o event.Envelope) bool { return o.Position == e.Position }); parks != l.db.parked[e.Stream] {
			l.t.Errorf("batch from %d to %d parks event %d: %v; its stream %s is parked: %v", l.lease.Checkpoint, b.To,
				e.Position, parks, e.Stream, !parks)
		}
	}
	if want := l.concerned(l.lease.Checkpoint, b.To); !slices.Equal(positions(next), positions(want)) {
		l.t.Errorf("batch from %d to %d has %v, want %v", l.lease.Checkpoint, b.To, positions(next), positions(want))
	}
}

// replay takes the steps of a command.
func (l *life) replay(replaying CommandRun) Result {
	db := &l.db
	r, step := replaying.Begin()
	for {
		if end, ends := step.(EndCommandRun); ends {
			return end.Result
		}
		if f := l.refuse(); f != nil {
			return r.Faulted(f)
		}
		switch s := step.(type) {
		case ScheduleReplay:
			found := len(db.queue) == 0 && len(db.letters) > 0
			if found {
				db.queue = []int64{slices.Min(slices.Collect(maps.Keys(db.letters)))}
			}
			r, step = r.Scheduled(Scheduled{Made: found})
		case FindCommand:
			found := engine.NextCommand{Parked: int64(len(db.letters)), ParkedStreams: len(db.parked) > 0}
			if len(db.queue) > 0 && !s.Discards {
				found.Command = &engine.Command{ID: 1, Replay: true}
			}
			r, step = r.FoundCommand(found)
		case BeginReplay:
			for len(db.queue) > 0 && db.letters[db.queue[0]] == nil {
				db.queue = db.queue[1:]
			}
			if len(db.queue) == 0 {
				r, step = r.Begun(nil)
				continue
			}
			letter := db.letters[db.queue[0]]
			if letter.DeadLetter != s.Unfinished {
				letter.Begun++
			}
			copied := *letter
			r, step = r.Begun(&copied)
		case ReadEvent:
			r, step = r.Read(engine.Page{Events: db.events[s.Range.After:s.Range.UpTo], To: s.Range.UpTo})
		case ApplyReplay:
			r, step = l.applyLetter(r, s)
		case RecordFailedReplay:
			letter := db.letters[s.Replay.DeadLetter]
			if s.Attempt > 0 && s.Attempt != letter.Attempts+1 {
				l.t.Errorf("dead letter %d: attempt %d follows %d", letter.DeadLetter, s.Attempt, letter.Attempts)
			}
			letter.Attempts, letter.Begun, db.queue = max(letter.Attempts, s.Attempt), 0, db.queue[1:]
			delete(db.blocked, letter.Position)
			switch {
			case s.Halt != nil:
				db.row.Halted, db.row.Failed, db.queue = true, s.Halt.Error(), nil
			case s.Action == projection.ActionSkip:
				db.skipped[letter.Position] = true
				l.unpark(letter.Position)
			}
			step = r.Ended(s)
		}
	}
}

func (l *life) applyLetter(r CommandRun, s ApplyReplay) (CommandRun, ReplayStep) {
	if f := l.fenced(); f != nil {
		return r.Applied(f, false, l.now)
	}
	if l.faults && l.d.one(3) {
		class := []faults.Class{faults.Handler, faults.Infrastructure, faults.Unclear,
			faults.Interrupted}[l.d.below(4)]
		return r.Applied(&faults.Fault{Class: class, Err: errors.New("replay")}, l.down, l.now)
	}
	pos := s.Batch.Replay.Position
	l.unpark(pos)
	l.db.queue = l.db.queue[1:]
	l.db.applied[pos]++
	return r.Applied(nil, false, l.now)
}

// TestRunTakesTheEventsThatCameWhileItWaited renews runs by tails, and compares the positions of their events.
func TestRunTakesTheEventsThatCameWhileItWaited(t *testing.T) {
	list := func(from, to int64) (list events) {
		for pos := from; pos <= to; pos++ {
			list = append(list, event.Envelope{Position: pos, Type: []string{"a", "b"}[pos%2]})
		}
		return list
	}
	tail := func(incarnation engine.Incarnation, from, mark int64) Tail {
		return Tail{Incarnation: incarnation, From: from, Mark: mark, Events: list(from+1, mark)}
	}
	for name, c := range map[string]struct {
		events     events // of the run, whose mark is 12
		types      []string
		quarantine int
		tail       Tail
		want       events
	}{
		"more events": {events: list(11, 12), tail: tail(1, 5, 15), want: list(11, 15)},
		"more events of the types": {
			events: list(12, 12), types: []string{"a"}, tail: tail(1, 5, 14),
			want: events{list(12, 12)[0], list(14, 14)[0]},
		},
		"no feed":                           {events: list(11, 12), want: list(11, 12)},
		"nothing new":                       {events: list(11, 12), tail: tail(1, 5, 12), want: list(11, 12)},
		"a tail that begins after them":     {events: list(11, 12), tail: tail(1, 12, 15), want: list(11, 15)},
		"a tail that begins later":          {events: list(11, 12), tail: tail(1, 13, 15), want: list(11, 12)},
		"another incarnation of the server": {events: list(11, 12), tail: tail(2, 5, 15), want: list(11, 12)},
		"one by one": {
			events: list(11, 12), quarantine: 1, tail: tail(1, 5, 15), want: list(11, 12),
		},
		"enough events":                    {events: list(3, 12), tail: tail(1, 2, 15), want: list(3, 12)},
		"a read, since it was behind":      {tail: tail(1, 5, 15), want: list(11, 15)},
		"a read, and nothing of the types": {types: []string{"c"}, tail: tail(1, 5, 15)},
	} {
		t.Run(name, func(t *testing.T) {
			buffer := Buffer{Events: c.events, To: 12}
			if c.events == nil {
				buffer.To = 10
			}
			run := BatchRun{Lease: engine.Lease{Incarnation: 1}, Buffer: buffer, Sizer: NewBatchSizer(10, 10),
				Quarantine: c.quarantine,
				def:        &engine.Definition{Types: c.types}, mark: 12}
			got := run.Renewed(c.tail)
			if !slices.EqualFunc(got.Buffer.Events, c.want,
				func(a, b event.Envelope) bool { return a.Position == b.Position }) {
				t.Errorf("got %d events, want %d: %v", len(got.Buffer.Events), len(c.want), got.Buffer.Events)
			}
			if renewed := len(c.want) > len(c.events); renewed &&
				(got.mark != c.tail.Mark || got.Buffer.To != c.tail.Mark) ||
				!renewed && (got.mark != 12 || got.Buffer.To != buffer.To) {
				t.Errorf("the mark is %d, the buffer ends at %d", got.mark, got.Buffer.To)
			}
		})
	}
}
