package actors

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/fair"
	"github.com/millrace-go/millrace/internal/growstack"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// worker does the jobs of one projection, one at a time, each in a goroutine of its own.
type worker struct {
	deps *Deps
	def  *engine.Definition
	id   projection.ID
	// epoch is the epoch of the lease, for logs.
	epoch int64
	fed   *intake
	// running is the job in progress, nil if there is none. yielded is closed to have it end where it can do so in
	// order.
	running *running
	yielded chan struct{}
	// long reports whether the last delivery took long, and alone whether the last batch that could share a message did
	// not.
	long, alone atomic.Bool
	// delivering cancels the delivery in progress, nil if there is none.
	delivering atomic.Pointer[context.CancelCauseFunc]
}

// intake is what a projection takes from its feed, and what it reads for itself. It is no part of the worker because of
// the size class of projectionActor.
type intake struct {
	// taken is the position up to which it has taken the feed's events, which the feed reads. since is when the
	// projection began, with its lease.
	taken atomic.Int64
	since time.Time
	// ahead is the read that goes on while batches are applied, or its result, nil if there is none.
	ahead atomic.Pointer[readAhead]
	// held is the room for the events that it has read.
	held held
}

// tail returns a message of the feed as the machine knows it. Events that may have been read before the node held the
// lease are left out, and the projection reads them for itself: they may have been redacted before.
func (w *worker) tail(msg *messages.TailAdvanced) machine.Tail {
	t := machine.Tail{Incarnation: msg.Incarnation, Mark: msg.Mark, From: msg.From, Events: msg.Events}
	if len(t.Events) > 0 && msg.Asked.Before(w.fed.since) {
		t.From, t.Events = t.Mark, nil
	}
	return t
}

// log writes a line with the projection's fields. A logger for each projection would keep these fields in memory.
func (w *worker) log(level zapcore.Level, message string, fields ...zap.Field) {
	if line := w.deps.Log.Check(level, message); line != nil {
		line.Write(append([]zap.Field{zap.String("tenant", w.id.Tenant), zap.String("projection", w.id.Name),
			zap.Int("partition", w.id.Partition), zap.Int64("epoch", w.epoch)}, fields...)...)
	}
}

// task is a job with what the shell adds: the slot that it needs, and how long it may take once it has the slot. The
// wait for the slot ends only with the actor or the runtime.
type task struct {
	limit time.Duration
	slot  acquireFunc
	work  func(ctx context.Context) machine.Result
}

// run waits for the task's slot, and does its work in a goroutine. The actor of ctx then calls done with the result.
func (w *worker) run(ctx actor.Context, t task, done func(ctx actor.Context, result machine.Result)) {
	j, self := &running{}, ctx.Self()
	w.running = j
	w.deps.Own(func() {
		result := w.do(j, t)
		w.deps.call(self, func(ctx actor.Context) {
			if w.running == j {
				w.running = nil
			}
			done(ctx, result)
		})
	})
}

// running is a job in progress, which can be stopped.
type running struct {
	mu      sync.Mutex
	stopped bool
	cancel  context.CancelFunc
}

// stop cancels the context of the job.
func (j *running) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopped = true
	if j.cancel != nil {
		j.cancel()
	}
}

// within sets the function that cancels the context of the job.
func (j *running) within(cancel context.CancelFunc) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cancel = cancel
	if j.stopped {
		cancel()
	}
}

func (w *worker) do(j *running, t task) machine.Result {
	asked := time.Now()
	waiting, cancel := context.WithCancel(w.deps.accept)
	defer cancel()
	j.within(cancel)
	release, err := t.slot(waiting)
	if err != nil {
		return machine.Faulted{Fault: w.fault(err)}
	}
	growstack.Grow() // not while it waits: the garbage collector makes the stacks of waiting goroutines smaller
	began := time.Now()
	result := w.inSlot(j, t, began, release)
	if run, ran := result.(machine.RunResult); ran {
		w.record(run, time.Since(began))
		// A callback that blocks must not keep the slot from other projections.
		if w.deps.Observer.BatchEnded != nil {
			w.observe(run, began.Sub(asked), time.Since(began))
		}
	}
	return result
}

// inSlot does the work of a task, and releases its slot.
func (w *worker) inSlot(j *running, t task, began time.Time, release func()) machine.Result {
	defer release()
	ctx, cancel := context.WithTimeout(w.deps.life, t.limit)
	defer cancel()
	j.within(cancel)
	w.deps.Registry.amend(w.id, func(e *ProjectionEntry) { e.Busy, e.Limit, e.Queued = began, t.limit, false })
	return t.work(ctx)
}

func (w *worker) task(job machine.Job, lease engine.Lease) task {
	if _, applies := job.(machine.Apply); applies {
		return w.batchTask(job)
	}
	return w.statementTask(job, lease)
}

// batchTask returns the task of a machine.Apply. The task refers to the job, since a copy of its run would be large. An
// event that crashes processes is tried in a slot of its own besides.
func (w *worker) batchTask(job machine.Job) task {
	w.yielded = nil
	if w.def.Delivers {
		w.yielded = make(chan struct{})
	}
	var in *slot
	wait, yielded, connected := w.batchSlot, w.yielded, true
	switch {
	case job.(machine.Apply).Run.Lease.Crashing():
		wait = func(ctx context.Context) (func(), error) {
			return w.deps.Limiter.quarantined(ctx, w.flow(), w.batchSlot)
		}
	case w.shares(job):
		wait, connected = func(ctx context.Context) (func(), error) { return w.deps.Limiter.share(ctx, w.flow()) },
			false
	case !w.def.Delivers:
		wait = func(ctx context.Context) (release func(), err error) {
			in, err = w.deps.Limiter.batchInTurn(ctx, w.flow(), w.opening(job))
			if err != nil {
				return nil, err
			}
			return in.release, nil
		}
	}
	return task{w.attemptLimit(), wait, func(ctx context.Context) machine.Result {
		if in != nil {
			defer in.drop()
		}
		return w.batch(ctx, job.(machine.Apply).Run, in, connected, yielded)
	}}
}

// shares reports whether a machine.Apply needs no connection, except for its message: it reads nothing, and the last
// one went with others.
func (w *worker) shares(job machine.Job) bool {
	run := job.(machine.Apply).Run
	return w.def.Shares && !w.alone.Load() && !run.Reads() && !run.Fresh && len(run.Apart) == 0
}

// connect returns the Connect of a batch that can share a message. connected reports whether its slot is a
// connection's.
func (w *worker) connect(connected bool) func(ctx context.Context, tenants []string) (release func(), err error) {
	w.alone.Store(false)
	return func(ctx context.Context, tenants []string) (release func(), err error) {
		if len(tenants) == 0 {
			w.alone.Store(true)
		}
		switch {
		case connected:
			return noSlot(ctx)
		case len(tenants) > 0:
			return w.deps.Limiter.message(ctx, tenants)
		}
		return w.deps.Limiter.batch(ctx, w.flow())
	}
}

// attemptLimit limits a batch, a delivery or a replay. Its handler has Timeout, after the store waited for batches of
// others for half of it at most.
func (w *worker) attemptLimit() time.Duration {
	return w.def.Timeout + w.def.Timeout/2 + 5*w.deps.Timing.QueryTimeout
}

// opening returns the opening of a machine.Apply that calls the handler without further steps, else nil.
func (w *worker) opening(job machine.Job) engine.Opening {
	run := job.(machine.Apply).Run
	if w.def.Opening == nil || run.Reads() || run.Fresh || len(run.Apart) > 0 {
		return nil
	}
	return w.def.Opening(run.Lease)
}

// statementTask returns the task of any other job.
func (w *worker) statementTask(job machine.Job, lease engine.Lease) task {
	query, read, plane := w.deps.Timing.QueryTimeout, w.readSlot, w.deps.Plane
	switch job := job.(type) {
	case machine.Command:
		return task{
			w.attemptLimit(), w.batchSlot,
			func(ctx context.Context) machine.Result { return w.command(ctx, job.Replay) },
		}
	case machine.Record:
		// This also runs at the end of the runtime, when no batch may begin any more: the event has failed, and its
		// failure must be recorded.
		slot := func(context.Context) (func(), error) { return read(w.deps.life) }
		return task{query, slot, func(ctx context.Context) machine.Result {
			first, err := plane.RecordFailure(ctx, lease, job.Failure, job.Retry)
			return w.result(machine.Recorded{First: first}, err)
		}}
	case machine.Note:
		return task{query, read, func(ctx context.Context) machine.Result {
			_, err := plane.RecordFailure(ctx, lease, job.Failure, job.Retry)
			return w.result(machine.OK{}, err)
		}}
	case machine.WriteReason:
		return task{query, read, func(ctx context.Context) machine.Result {
			return w.result(machine.OK{}, plane.SetFailed(ctx, lease, job.Reason))
		}}
	case machine.Halt:
		return task{query, read, func(ctx context.Context) machine.Result {
			return w.result(machine.OK{}, plane.Halt(ctx, lease, job.Reason.Error()))
		}}
	case machine.Move:
		slot := w.batchSlot
		if w.def.Delivers {
			slot = w.ackSlot // nothing is delivered
		}
		return task{
			2 * query, slot,
			func(ctx context.Context) machine.Result { return w.result(machine.OK{}, w.move(ctx, lease, job)) },
		}
	case machine.Ask:
		return task{
			askTimeout + time.Second, noSlot,
			func(ctx context.Context) machine.Result { return w.ask(ctx, job.Failure) },
		}
	}
	panic(fmt.Sprintf("no work for %T", job))
}

// flow returns the Flow of the worker's requests for slots.
func (w *worker) flow() fair.Flow { return w.deps.Limiter.flow(w.id.Tenant, w.id.Name, w.def.Weight) }

// readSlot waits for a slot for a short statement.
func (w *worker) readSlot(ctx context.Context) (release func(), err error) {
	return w.deps.Limiter.read(ctx, w.flow())
}

// ackSlot waits for a slot for a short statement of a delivery.
func (w *worker) ackSlot(ctx context.Context) (release func(), err error) {
	return w.deps.Limiter.Ack(ctx, w.id, w.def.Weight)
}

// noSlot is the slot of work that holds no connection.
func noSlot(context.Context) (release func(), err error) { return func() {}, nil }

// batchSlot waits for a slot for a batch or a delivery.
func (w *worker) batchSlot(ctx context.Context) (release func(), err error) {
	switch {
	case !w.def.Delivers:
		return w.deps.Limiter.batch(ctx, w.flow())
	case w.long.Load():
		return w.deps.Limiter.longDelivery(ctx, w.flow())
	}
	return w.deps.Limiter.delivery(ctx, w.flow())
}

// beside returns slot unless the slot of the job stands for a connection. That of a delivery never does.
func (w *worker) beside(slot acquireFunc, connected bool) acquireFunc {
	if w.def.Delivers || !connected {
		return slot
	}
	return noSlot
}

// result returns ok, or the fault of err.
func (w *worker) result(ok machine.Result, err error) machine.Result {
	if err != nil {
		return machine.Faulted{Fault: w.fault(err)}
	}
	return ok
}

// fault classifies the error of a statement, and keeps its text unchanged.
func (w *worker) fault(err error) *faults.Fault {
	fault := *w.deps.Plane.Classify(err)
	if _, is := err.(*faults.Fault); !is {
		fault.Err = err
	}
	return &fault
}

// stop cancels the job in progress, and the read ahead.
func (w *worker) stop() {
	if w.running != nil {
		w.running.stop()
	}
	if a := w.fed.ahead.Load(); a != nil {
		a.cancel()
	}
}

// yield asks the job in progress to end where it can do so in order.
func (w *worker) yield() {
	if w.yielded != nil {
		close(w.yielded)
		w.yielded = nil
	}
}

// errRevalidated and errStopped are causes of the end of a delivery.
var (
	errRevalidated = fmt.Errorf("the database says that this node no longer holds the lease: %w",
		projection.ErrLeaseLost)
	errStopped = fmt.Errorf("the projection was stopped on this node: %w", projection.ErrLeaseLost)
)

// cutShort cancels the delivery in progress, since no fence holds back what it sends.
func (w *worker) cutShort(cause error) {
	if cancel := w.delivering.Load(); cancel != nil {
		(*cancel)(cause)
	}
}

// move parks or skips an event.
func (w *worker) move(ctx context.Context, lease engine.Lease, job machine.Move) error {
	f := job.Failure
	if job.Action == projection.ActionSkip {
		return w.deps.Plane.Skip(ctx, lease, f.Event.Position)
	}
	letter := projection.DeadLetter{Position: f.Event.Position, Stream: f.Event.Stream, Version: f.Event.Version,
		Type:  f.Event.Type,
		Error: f.Err.Error(), Stack: f.Stack, Attempts: f.Attempt}
	return w.deps.Plane.Park(ctx, lease, letter, job.Action == projection.ActionParkStream)
}

// batch takes the steps of a batch. in is its slot, nil if that is promised to no other batch. connected reports that
// its slot is that of a connection.
func (w *worker) batch(ctx context.Context, run machine.BatchRun, in *slot, connected bool,
	yielded <-chan struct{}) machine.Result {
	if newest := w.deps.Feeds.newest(w.id.Tenant); newest != nil {
		run = run.Renewed(w.tail(newest))
	}
	w.keepAhead(run)
	read := func() {}
	if run.Reads() {
		release, err := w.beside(w.readSlot, connected)(ctx)
		if err != nil {
			return run.Faulted(w.fault(err))
		}
		read = sync.OnceFunc(release)
		defer read()
	}
	run, step := run.Begin()
	for {
		var err error
		switch s := step.(type) {
		case machine.ReadPage:
			run, step, err = w.readPage(ctx, run, s)
		case machine.CountFailed, machine.ListParked, machine.FindParked:
			run, step, err = w.lookUpParked(ctx, run, step)
		case machine.BeginAttempt:
			run, step, err = w.beginAttempt(ctx, run, s)
		case machine.ApplyBatch:
			s.Batch.Yield = yielded
			if in != nil {
				s.Batch.Slot, s.Batch.Opening = in, in.opening
			}
			if w.def.Shares {
				s.Batch.Connect, s.Batch.Connected = w.connect(connected), connected
			}
			w.prefetch(ctx, run.Lease.Incarnation, s.Prefetch)
			read()
			began := time.Now()
			err := w.apply(ctx, run.Lease, s.Batch)
			took := time.Since(began)
			partial, found := partialOf(err), w.examine(ctx, err)
			var next *engine.Page
			if err == nil && !s.More {
				next = w.takeAhead()
			}
			left := 0
			if err != nil || s.More {
				left = s.Memory
			}
			kept := w.keep(left, next)
			return run.Applied(machine.RunResult{Partial: partial, Fault: found.fault, Outage: found.outage, Next: next,
				NoRoom: !kept, Took: took})
		case machine.EndRun:
			return s.Result
		}
		if err != nil {
			return run.Faulted(w.fault(err))
		}
	}
}

// beginAttempt counts an attempt before the handler is called.
func (w *worker) beginAttempt(ctx context.Context, run machine.BatchRun,
	begin machine.BeginAttempt) (next machine.BatchRun, following machine.RunStep, err error) {
	err = w.deps.Plane.BeginAttempt(ctx, run.Lease, begin.Attempt.Position, begin.Attempt.Attempt)
	if err != nil {
		return run, begin, err
	}
	next, following = run.Begun()
	return next, following, nil
}

func (w *worker) readPage(ctx context.Context, run machine.BatchRun,
	read machine.ReadPage) (next machine.BatchRun, following machine.RunStep, err error) {
	w.deps.Registry.amend(w.id, func(e *ProjectionEntry) { e.Reading = true })
	defer w.deps.Registry.amend(w.id, func(e *ProjectionEntry) { e.Reading = false })
	page, err := w.page(ctx, run.Lease.Incarnation, read)
	if err != nil {
		return run, read, err
	}
	next, following = run.Read(page)
	return next, following, nil
}

// lookUpParked reads what a run has to know about parked events.
func (w *worker) lookUpParked(ctx context.Context, run machine.BatchRun,
	step machine.RunStep) (next machine.BatchRun, following machine.RunStep, err error) {
	plane := w.deps.Plane
	switch s := step.(type) {
	case machine.CountFailed:
		var failed int64
		failed, err = plane.CountFailedLetters(ctx, run.Lease)
		next, following = run.Counted(failed)
	case machine.ListParked:
		var ids []string
		ids, err = plane.ListParkedStreams(ctx, run.Lease, s.Most)
		next, following = run.Listed(ids)
	case machine.FindParked:
		var parked map[string]bool
		parked, err = plane.ParkedStreams(ctx, run.Lease, s.Streams)
		next, following = run.FoundParked(parked)
	}
	if err != nil {
		return run, step, err
	}
	return next, following, nil
}

// readLimit limits a read of a page in multiples of QueryTimeout. A store keeps the events that arrived until then, so
// a batch over a slow connection goes on with them in the rest of its time.
const readLimit = 3

// read reads a page of events. The server must still be in the incarnation in which the projection's row was read.
func (w *worker) read(ctx context.Context, in engine.Incarnation, r engine.ReadRange) (engine.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit*w.deps.Timing.QueryTimeout)
	defer cancel()
	page, err := w.deps.Events.Read(ctx, w.id.Tenant, r)
	if err == nil && page.Incarnation != in {
		err = event.ErrIncarnationChanged
	}
	return page, err
}

// apply runs a batch or a delivery.
func (w *worker) apply(ctx context.Context, lease engine.Lease, batch engine.Batch) error {
	if w.def.Delivers && len(batch.Events) > 0 {
		began := time.Now()
		defer func() { w.long.Store(time.Since(began) > longAfter) }()
		delivery, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		w.delivering.Store(&cancel)
		defer w.delivering.Store(nil)
		ctx = delivery
	}
	return w.def.Apply(ctx, lease, batch)
}
