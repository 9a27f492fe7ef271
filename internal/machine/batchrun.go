package machine

import (
	"slices"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/policy"
)

// BatchRun is one batch, from what is read to what is applied. The shell takes its steps in one goroutine, without the
// actor in between, since each exchange of messages costs time. Each method handles how a step ended and returns the
// next one.
type BatchRun struct {
	Lease      engine.Lease
	Buffer     Buffer
	Sizer      BatchSizer
	Quarantine int
	// Fresh asks for a connection that no batch has used before.
	Fresh bool
	// Apart are the rows of the leases of the projections from which this one is kept apart.
	Apart []int32
	// Live reports that the projection is at the end of the events, at most one batch behind.
	Live bool
	// Parked are the parked streams, as far as they are known.
	Parked *ParkedStreams

	def *engine.Definition
	// careful reports that the projection has waited, or that nothing succeeded since a fault. Nothing is read for
	// later batches then, since it may have to wait again.
	careful  bool
	mark     int64
	failures engine.FailureWindow
	batch    engine.Batch
	left     int // events in the buffer after the batch
	attempt  engine.Begun
}

// RunStep is what the shell does next in a BatchRun: ReadPage, CountFailed, ListParked, FindParked, BeginAttempt,
// ApplyBatch or EndRun.
type RunStep interface{ isRunStep() }

type (
	// ReadPage reads a page of the tenant's events. If the node has no room for Memory, which is what all events of the
	// projection that are in memory then take in bytes, the page has Least events at most: those of one batch.
	ReadPage struct {
		Range         engine.ReadRange
		Memory, Least int
	}
	// CountFailed counts the parked dead letters whose events failed.
	CountFailed struct{}
	// ListParked reads the parked streams, up to that many.
	ListParked struct{ Most int }
	// FindParked finds out which of the streams are parked.
	FindParked struct{ Streams []string }
	// BeginAttempt counts an attempt before it is made.
	BeginAttempt struct{ Attempt engine.Begun }
	// ApplyBatch applies the batch. If Prefetch is not nil, that page is read meanwhile, unless a read of it is in
	// progress or the node has no room. The read may last longer than the batch. Unless More events are in memory, a
	// run that succeeds waits for the page. Memory is what the projection's own events take in bytes.
	ApplyBatch struct {
		Batch    engine.Batch
		Prefetch *ReadPage
		More     bool
		Memory   int
	}
	// EndRun ends the run with its result.
	EndRun struct{ Result RunResult }
)

// RunEnd says how a BatchRun ended.
type RunEnd int

const (
	// RunFaulted means that a step before the handler failed with Fault.
	RunFaulted RunEnd = iota
	// RunEmpty means that no event concerns the projection.
	RunEmpty
	// RunFull means that the next event is of a parked stream, and too many such events are parked already.
	RunFull
	// RunCrashed means that processes end at the next event.
	RunCrashed
	// RunApplied means that the handler was called, that none was needed, or that the event cannot be read.
	RunApplied
)

// RunResult is the result of Apply.
type RunResult struct {
	End    RunEnd
	Buffer Buffer
	Batch  engine.Batch
	// Attempt was counted before the handler was called. It has no outcome unless the batch succeeded.
	Attempt engine.Begun
	// Partial is the result of a delivery that moved the checkpoint in steps, else nil.
	Partial *engine.PartialResult
	// Fault is why the run failed, nil if it did not. Outage is true if IsOutage says that no event is to blame.
	Fault  *faults.Fault
	Outage bool
	// Took is how long the store took to apply the batch.
	Took time.Duration
	// Next is the page that was read meanwhile, nil if none was.
	Next *engine.Page
	// NoRoom reports that the node has no room for the events that are left. They are dropped, and read again.
	NoRoom bool
	// Parked are the parked streams before the batch, as far as they are known, and Blocked is Blocked of the row.
	Parked  *ParkedStreams
	Blocked int64
	// Live is that of the run, and Checkpoint the one before it.
	Live       bool
	Checkpoint int64
}

// Renewed returns the run with the events that the feed has read since the run was planned: it may have waited for its
// slot. t is the newest tail of the feed, the zero value if it has none.
func (r BatchRun) Renewed(t Tail) BatchRun {
	if t.Incarnation != r.Lease.Incarnation || t.Mark <= r.mark || len(r.Buffer.Events) >= r.Sizer.Most() ||
		r.Quarantine != 0 {
		return r
	}
	before := Buffer{To: r.Buffer.To, average: r.Buffer.average}
	if len(r.Buffer.Events) > 0 {
		before.To = r.Buffer.Events[0].Position - 1 // a part of the feed's slice is not copied
	}
	renewed, taken := before.fromTail(r.def, r.Lease.Share, &t)
	if !taken {
		renewed, taken = r.Buffer.fromTail(r.def, r.Lease.Share, &t)
	}
	if taken && len(renewed.Events) > 0 {
		r.Buffer, r.mark = renewed, t.Mark
	}
	return r
}

// Begin returns the first step.
func (r BatchRun) Begin() (BatchRun, RunStep) {
	if len(r.Buffer.Events) == 0 {
		return r, r.next()
	}
	return r.find()
}

// Read handles a page.
func (r BatchRun) Read(page engine.Page) (BatchRun, RunStep) {
	r.Buffer = r.Buffer.add(page)
	if len(r.Buffer.Events) == 0 {
		return r, r.end(RunResult{End: RunEmpty})
	}
	return r.find()
}

// covered returns the events that the next batch may cover.
func (r BatchRun) covered() events { return r.Buffer.window(r.def, r.Sizer.Most()) }

// next returns the read after the buffer.
func (r BatchRun) next() ReadPage {
	of, least := r.Buffer.next(r.def, r.Sizer.Most(), r.Lease.Share, r.mark), int(r.Sizer.size)
	if r.careful {
		of.Limit = min(of.Limit, least)
	}
	return ReadPage{Range: of, Memory: r.Buffer.memory(min(int64(of.Limit), of.UpTo-of.After)), Least: least}
}

func (r BatchRun) find() (BatchRun, RunStep) {
	switch {
	case r.counts():
		return r, CountFailed{}
	case !r.Lease.ParkedStreams:
		return r.FoundParked(nil)
	case r.Parked == nil:
		return r, ListParked{Most: mostParkedStreams + 1}
	case r.Parked.known():
		return r.FoundParked(r.Parked.ids)
	}
	window := r.covered()
	streams := make([]string, len(window))
	for i := range window {
		streams[i] = window[i].Stream
	}
	slices.Sort(streams)
	return r, FindParked{Streams: slices.Compact(streams)}
}

// counts reports whether the parked dead letters must be counted before the batch.
func (r BatchRun) counts() bool {
	return r.Lease.Blocked == engine.NotCounted && r.def.Counts(r.Lease.Parked, int64(r.Sizer.Most()))
}

// Counted records how many dead letters of events that failed are parked.
func (r BatchRun) Counted(failed int64) (BatchRun, RunStep) {
	r.Lease.SetFailed(failed)
	return r.find()
}

// Listed records the parked streams: all, or as many as were asked for.
func (r BatchRun) Listed(ids []string) (BatchRun, RunStep) {
	r.Parked = parkedStreams(ids)
	return r.find()
}

// FoundParked records which streams are parked, and takes the batch.
func (r BatchRun) FoundParked(parked map[string]bool) (BatchRun, RunStep) {
	streams := Parking{Streams: parked, Room: r.def.BlockedRoom(max(0, r.Lease.Blocked))}
	handled, blocked, n := r.Sizer.Split(r.covered(), streams)
	if n == 0 {
		return r, r.end(RunResult{End: RunFull})
	}
	r.batch = engine.Batch{
		Events: handled, BlockedByStream: blocked, To: r.Buffer.To, FailureWindow: r.failures, Fresh: r.Fresh,
		Apart: r.Apart,
	}
	r.left = len(r.Buffer.Events) - n
	if r.left != 0 {
		r.batch.To = r.Buffer.Events[n-1].Position
	}
	if len(handled) > 0 && handled[0].Unreadable != nil {
		return r, r.end(RunResult{End: RunApplied, Fault: unreadable(handled[0])})
	}
	if r.Quarantine == 0 || len(handled) == 0 {
		return r, r.apply()
	}
	// The attempt is counted first, since the process may crash before it could count it afterwards.
	e := handled[0]
	if r.Lease.Deadly(e.Position, r.def.Retry) {
		return r, r.end(RunResult{End: RunCrashed})
	}
	r.attempt = engine.Begun{Position: e.Position, Attempt: policy.NextAttempt(r.Lease.CrashAttemptsAt(e.Position))}
	return r, BeginAttempt{Attempt: r.attempt}
}

// Begun records that the attempt was counted.
func (r BatchRun) Begun() (BatchRun, RunStep) { return r, r.apply() }

func (r BatchRun) apply() RunStep {
	step := ApplyBatch{Batch: r.batch, More: r.left > 0, Memory: r.Buffer.memory(0)}
	if !r.careful && r.left < readBatches*r.Sizer.Most() && r.Buffer.To < r.mark {
		next := r.next()
		step.Prefetch = &next
	}
	return step
}

// Faulted ends the run at a step that failed. An attempt may have been counted all the same.
func (r BatchRun) Faulted(fault *faults.Fault) RunResult {
	return r.end(RunResult{End: RunFaulted, Fault: fault}).Result
}

// Applied ends the run after the batch. The result has what became of it.
func (r BatchRun) Applied(result RunResult) RunResult {
	result.End = RunApplied
	return r.end(result).Result
}

// unreadable is the fault of an event that cannot be read. It is the event's, as if its handler had failed.
func unreadable(e event.Envelope) *faults.Fault {
	return &faults.Fault{Class: faults.Handler, Position: e.Position, Err: e.Unreadable}
}

func (r BatchRun) end(result RunResult) EndRun {
	result.Buffer, result.Batch, result.Attempt, result.Live, result.Checkpoint = r.Buffer, r.batch, r.attempt, r.Live,
		r.Lease.Checkpoint
	result.Parked, result.Blocked = r.Parked, r.Lease.Blocked
	return EndRun{Result: result}
}

// Reads reports whether the run needs a connection for reads before the handler is called.
func (r BatchRun) Reads() bool {
	return len(r.Buffer.Events) == 0 || r.Lease.ParkedStreams && !r.Parked.known() || r.Quarantine != 0 || r.counts()
}
