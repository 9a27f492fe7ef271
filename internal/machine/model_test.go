package machine

import (
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// dice chooses: by bytes first, as a fuzzer gives them, then at random.
type dice struct {
	data []byte
	*rand.Rand
}

func (d *dice) below(n int) int {
	if len(d.data) > 0 {
		b := int(d.data[0])
		d.data = d.data[1:]
		return b % n
	}
	return d.Intn(n)
}

func (d *dice) one(n int) bool { return d.below(n) == 0 }

// database is what outlives machines: the row, the events, and what became of each.
type database struct {
	row      engine.Lease
	events   events
	bad      map[int64]int // how often an event still fails
	applied  map[int64]int
	skipped  map[int64]bool
	letters  map[int64]*engine.Replay // parked, by position
	blocked  map[int64]bool           // those of them whose events did not fail
	queue    []int64                  // of the open command
	parked   map[string]bool          // streams
	attempts map[int64]int            // as recorded, of each event
}

// life gives machines, one after another, random inputs over a model database, and checks the invariants.
type life struct {
	t      testing.TB
	d      *dice
	db     database
	m      Machine
	now    time.Time
	open   *Start // the job under way
	lease  engine.Lease
	tail   bool // the feed owes an answer
	gate   bool // so does the supervisor's gate
	faults bool
	down   bool // what the handler depends on
	seen   func(before State, in Input, after State)
	jobs   map[string]int
}

func newLife(t testing.TB, d *dice) *life {
	return &life{t: t, d: d, now: time.Unix(1000, 0), faults: true, jobs: map[string]int{},
		db: database{bad: map[int64]int{}, applied: map[int64]int{},
			skipped: map[int64]bool{}, letters: map[int64]*engine.Replay{}, blocked: map[int64]bool{},
			attempts: map[int64]int{}, parked: map[string]bool{},
			row: engine.Lease{Row: 1, Owner: "node", Epoch: 1, Incarnation: 1}}}
}

func (l *life) mark() int64 { return int64(len(l.db.events)) }

func (l *life) ended() bool {
	switch l.m.State.(type) {
	case Released, Lost:
		return true
	}
	return false
}

// birth lets another owner claim the lease, with a new machine.
func (l *life) birth() {
	l.open, l.tail, l.gate = nil, false, false
	l.db.row.Epoch++
	l.db.row.Desired = engine.WantRun // no node claims it before
	def := &engine.Definition{MaxEvents: 1 + l.d.below(8), MaxBytes: 1 << 20, Types: []string{"a"}}
	def.Largest = 3 * def.MaxEvents
	def.Retry = projection.RetryPolicy{MaxAttempts: 3, Base: 50 * time.Millisecond, Cap: time.Second, Factor: 2}
	def.OnFailure = []projection.Action{projection.ActionPark, projection.ActionParkStream, projection.ActionSkip,
		projection.ActionStop}[l.d.below(4)]
	def.MaxParked, def.MaxBlocked, def.MaxFailureShare, def.Faults = -1, -1, -1, faults.Limits{}.WithDefaults()
	if l.d.one(4) {
		def.MaxParked, def.MaxBlocked = 3, 3
	}
	if l.d.one(3) {
		def.FailureHandler = neverCalled
	}
	replay := projection.ReplayPolicy{Interval: time.Duration(l.d.below(2)) * time.Minute}
	def.Replay = engine.Policy{Replay: replay}.WithDefaults().Replay
	if l.d.one(2) {
		def.Breaker = engine.BreakerDefaults(projection.BreakerPolicy{
			IsOutage: func(error) bool { panic("called") }, Failures: 3,
		})
	}
	row := l.row()
	l.m = New(&Config{Def: def, HeartbeatInterval: time.Second, AdvanceEvery: time.Second, Start: time.Unix(1000, 0),
		ReplayBackoff: 100 * time.Millisecond}, row)
	l.m.LeaseDeadline = l.now.Add(5 * time.Second)
	l.step(Started{Stale: l.d.one(2)})
}

func (l *life) answerTail() {
	l.tail = false
	l.step(TailAdvanced{l.newest()})
}

// newest is the tail of the feed.
func (l *life) newest() Tail {
	from := max(0, l.mark()-int64(l.d.below(10)))
	return Tail{Incarnation: l.db.row.Incarnation, Mark: l.mark(), From: from, Events: l.db.events[from:]}
}

// append appends some events.
func (l *life) append() {
	for range l.d.below(6) {
		pos := l.mark() + 1
		l.db.events = append(l.db.events, event.Envelope{Position: pos,
			Stream: string(rune('p' + l.d.below(5))), Type: []string{"a", "a", "b"}[l.d.below(3)]})
		if l.faults && l.d.one(8) {
			l.db.bad[pos] = 1 + l.d.below(6)
		}
	}
}

func (l *life) answerGate() {
	l.gate = false
	in := ServerAnswers{Waited: l.d.one(2), Jitter: l.d.Float64()}
	if in.Waited && l.d.one(2) {
		row := l.row()
		in.Lease = &row
	}
	l.step(in)
}

func (l *life) row() engine.Lease {
	row := l.db.row
	row.HasCommands = len(l.db.queue) > 0
	row.Parked, row.ParkedStreams = int64(len(l.db.letters)), len(l.db.parked) > 0
	return row
}

// one does one random thing to a projection.
func (l *life) one() {
	if l.ended() {
		l.birth()
		return
	}
	switch n := l.d.below(100); {
	case n < 50 && l.open != nil:
		l.now = l.now.Add(time.Duration(l.d.below(80)) * time.Millisecond)
		l.finish()
	case n < 60 && l.gate:
		l.answerGate()
	case n < 65:
		l.append()
		l.answerTail()
	case n < 78 && !l.m.Sent.Armed.IsZero():
		l.now = l.m.Sent.Armed
		l.step(Tick{})
	case n < 83:
		l.step(LeaseDeadline{l.now.Add(time.Duration(l.d.below(6000)) * time.Millisecond)})
	case n < 86:
		l.db.row.Desired = map[bool]engine.DesiredState{true: engine.WantPause,
			false: engine.WantRun}[l.db.row.Desired.Runs()]
		if !l.db.row.Desired.Runs() && l.d.one(2) {
			l.step(Drain{}) // else the next read of the row comes first
		}
	case n < 88:
		l.db.row.Halted, l.db.row.Failed, l.db.row.Attempts = false, "", 0
		clear(l.db.attempts)
		l.step(Resumed{})
	case n < 90:
		for pos := range l.db.letters {
			l.db.queue = append(l.db.queue, pos)
		}
		slices.Sort(l.db.queue)
		l.step(CommandPending{})
	case n < 92:
		l.step(Revalidate{l.row()})
	case n < 93:
		l.tail = true
		l.step(TailDropped{})
	case n < 94:
		l.tail = true
		l.step(TailFailed{[]error{errors.New("broken"), tenancy.ErrRestored}[l.d.below(2)]})
	case n < 95:
		l.step(Drain{})
	case n < 96:
		l.down = !l.down
	case n < 97: // the process dies
		l.db.row.CrashCount++
		l.birth()
	case n < 98: // the server crashes, and loses nothing
		l.db.row.Incarnation++
		l.tail = true
	case n < 99:
		if l.open != nil {
			switch l.open.Job.(type) {
			case Load, Advance:
				l.open = nil
			}
		}
		l.step(Unanswered{})
	default:
		l.step(Done{Op: l.m.Sent.Op - 1, Result: OK{}})
	}
}

// settle stops all faults. After that every wait must end.
func (l *life) comeToRest() {
	l.faults, l.down = false, false
	clear(l.db.bad)
	for n := 0; ; n++ {
		if n > 5000 {
			l.t.Fatalf("it does not come to rest: %s %+v", name(l.m.State), l.m.Lease)
		}
		l.db.row.Desired = engine.WantRun
		l.step(LeaseDeadline{l.now.Add(time.Hour)})
		switch l.m.State.(type) {
		case Halted:
			l.db.row.Halted, l.db.row.Failed, l.db.row.Attempts = false, "", 0
			l.m.Def.MaxParked, l.m.Def.MaxBlocked, l.m.Def.OnFailure = -1, -1, projection.ActionPark
			clear(l.db.attempts)
			l.step(Resumed{})
			continue
		case FeedFailed:
			l.answerTail()
			continue
		}
		switch {
		case l.open != nil:
			l.finish()
		case l.ended():
			l.birth()
		case l.tail:
			l.answerTail()
		case l.gate:
			l.answerGate()
		case !l.m.Sent.Armed.IsZero() && n < 4000:
			l.now = l.m.Sent.Armed
			l.step(Tick{})
		default: // the feed has sent every message, and sends none twice
			l.atRest()
			return
		}
	}
}

func (l *life) atRest() {
	if l.m.State != (Idle{}) || l.m.Position != l.mark() || l.db.row.Checkpoint != l.mark() {
		l.t.Errorf("at rest in %s at %d, checkpoint %d, mark %d", name(l.m.State), l.m.Position, l.db.row.Checkpoint,
			l.mark())
	}
	if n := int64(len(l.db.letters)); l.m.Lease.Parked != n ||
		l.m.Lease.Blocked != engine.NotCounted && l.m.Lease.ParkedFailures() != l.failed() {
		l.t.Errorf("%d events are parked, of which %d failed; the row says %d and %d blocked", n, l.failed(),
			l.m.Lease.Parked, l.m.Lease.Blocked)
	}
	for _, e := range l.db.events {
		n := l.db.applied[e.Position]
		if l.db.letters[e.Position] != nil {
			n++
		}
		if l.db.skipped[e.Position] {
			n++
		}
		if e.Type == "a" && n != 1 || e.Type != "a" && n != 0 {
			l.t.Errorf("event %d was applied %d times, parked %v, skipped %v", e.Position, l.db.applied[e.Position],
				l.db.letters[e.Position] != nil, l.db.skipped[e.Position])
		}
	}
}

func (l *life) step(in Input) {
	old, before := l.m, ""
	if l.d.one(200) {
		before = fmt.Sprintf("%+v", old)
	}
	m := old
	effects := m.Step(in, l.now)
	if before != "" && fmt.Sprintf("%+v", old) != before {
		l.t.Fatalf("%s changed the machine that it was given", name(in))
	}
	l.m = m
	if l.seen != nil {
		l.seen(old.State, in, m.State)
	}
	for _, e := range effects {
		l.effect(e)
	}
	if _, working := m.State.(Working); working != (l.open != nil) {
		l.t.Fatalf("state %s, but a job under way: %v", name(m.State), l.open != nil)
	}
	if _, done := in.(Done); m.Position < old.Position && !done {
		if _, gate := in.(ServerAnswers); !gate {
			l.t.Errorf("the position went back from %d to %d", old.Position, m.Position)
		}
	}
	l.ends(m)
	l.forgets(m)
	if old.Sent.Op > m.Sent.Op {
		l.t.Error("the number of operations went back")
	}
}

// forgets checks that a projection keeps no events in memory while it waits for long.
func (l *life) forgets(m Machine) {
	state := m.State
	if w, working := state.(Working); working {
		switch w.Job.(type) {
		case Command, WriteReason:
			state = w.Back
		}
	}
	switch state.(type) {
	case RetryWait, OutageWait, EventWait:
		if until(state).Sub(l.now) <= holdEvents {
			return
		}
	case AtGate, FaultWait, Misconfigured, FeedFailed, Halted:
	default:
		return
	}
	if n := len(m.Buffer.Events); n > 0 {
		l.t.Errorf("%d events are in memory in state %s", n, name(m.State))
	}
}

// ends checks that every wait ends.
func (l *life) ends(m Machine) {
	switch m.State.(type) {
	case RetryWait, OutageWait, EventWait, FaultWait, Misconfigured, Unconfirmed, Halted:
		if m.Sent.Armed.IsZero() {
			l.t.Errorf("nothing ends state %s", name(m.State))
		}
	case AtGate:
		if !l.gate {
			l.t.Error("it waits for a gate that was not asked")
		}
	case Failing, Reconnecting:
		l.t.Errorf("at rest in %s", name(m.State))
	}
}

func (l *life) effect(e Effect) {
	switch e := e.(type) {
	case Start:
		if l.open != nil {
			l.t.Fatalf("%s begins while %s is under way", name(e.Job), name(l.open.Job))
		}
		l.open, l.lease = &e, l.m.Lease
		l.jobs[name(e.Job)]++
		if job, records := e.Job.(Record); records && l.lease.Epoch == l.db.row.Epoch {
			if f := job.Failure; f.Attempt != l.db.attempts[f.Event.Position]+1 && l.db.row.Attempts != 0 {
				l.t.Errorf("event %d: attempt %d follows %d", f.Event.Position, f.Attempt,
					l.db.attempts[f.Event.Position])
			}
		}
	case Cancel: // a drain waits for the end of what it canceled
		if w, works := l.m.State.(Working); !works || w.Op != l.open.Op {
			l.open = nil
		}
	case Subscribe:
		l.tail = true
	case AskGate:
		l.gate = true
	case Drained:
		if a := e.Advance; a.Lease.Checkpoint == l.db.row.Checkpoint {
			l.db.row.Checkpoint = max(l.db.row.Checkpoint, a.To)
			if a.Begun.Attempt > 0 && l.db.row.CrashPosition == a.Begun.Position &&
				l.db.row.CrashAttempts == a.Begun.Attempt {
				l.db.row.CrashAttempts--
			}
		}
	}
}
