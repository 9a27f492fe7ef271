package actors

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// worker does the jobs of one projection, one at a time, each in a goroutine of its own.
type worker struct {
	deps *Deps
	def  *engine.Definition
	id   projection.ID
	log  *zap.Logger
	// cancel ends the job under way. yield is closed to have it stop where it can do so in order.
	cancel context.CancelFunc
	yield  chan struct{}
	// long is whether the last delivery took long, which is a matter of the limiter alone.
	long atomic.Bool
	// cut ends the delivery that is under way, nil while there is none.
	cut atomic.Pointer[context.CancelCauseFunc]
}

// slotFunc waits for a slot.
type slotFunc func(ctx context.Context) (release func(), err error)

// task is a job with what the shell adds: how long it may take, and the slot that it needs. The wait for the slot is bounded by
// nothing but the end of the actor or of the runtime.
type task struct {
	limit time.Duration
	slot  slotFunc
	work  func(ctx context.Context) machine.Result
}

// run begins a job for the row.
func (w *worker) run(self *actor.PID, s machine.Start, row engine.Lease) {
	w.do(self, s.Op, w.task(s.Job, row))
}

// do waits for the task's slot, does its work in a goroutine, and posts the result back.
func (w *worker) do(self *actor.PID, op int, t task) {
	w.deps.Registry.publish(w.id, func(e *ProjectionEntry) { e.Busy, e.Queued = time.Time{}, true })
	w.cancel = w.deps.runUnbounded(self, func(ctx context.Context) any {
		turn, stop := context.WithCancel(w.deps.accept)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		release, err := t.slot(turn)
		if err != nil {
			return &done{op: op, result: w.fault(err)}
		}
		defer release()
		ctx, cancel := context.WithTimeout(ctx, t.limit)
		defer cancel()
		w.deps.Registry.amend(w.id, func(e *ProjectionEntry) { e.Busy, e.Limit, e.Queued = time.Now(), t.limit, false })
		return &done{op: op, result: t.work(ctx)}
	})
}

func (w *worker) task(job machine.Job, row engine.Lease) task {
	query, store := w.deps.Timing.QueryTimeout, w.deps.Store
	switch job := job.(type) {
	case machine.Apply:
		w.yield = make(chan struct{})
		yield := w.yield
		return task{w.def.Timeout + 5*query, w.batchSlot(job.Run.Suspect()), func(ctx context.Context) machine.Result { return w.batch(ctx, job.Run, yield) }}
	case machine.Command:
		return task{w.def.Timeout + 5*query, w.batchSlot(false), func(ctx context.Context) machine.Result { return w.command(ctx, job.Replay) }}
	case machine.Record:
		// Also at the end of the runtime, when no batch may begin any more: what has failed has failed.
		slot := func(context.Context) (func(), error) { return w.deps.Limiter.read(w.deps.life) }
		return task{query, slot, func(ctx context.Context) machine.Result {
			first, err := store.RecordFailure(ctx, row, job.Failure)
			return w.result(machine.Recorded{First: first}, err)
		}}
	case machine.Note:
		return task{query, w.deps.Limiter.read, func(ctx context.Context) machine.Result {
			_, err := store.RecordFailure(ctx, row, job.Failure)
			return w.result(machine.OK{}, err)
		}}
	case machine.Publicize:
		return task{query, w.deps.Limiter.read, func(ctx context.Context) machine.Result {
			return w.result(machine.OK{}, store.SetFailed(ctx, row, job.Reason))
		}}
	case machine.Halt:
		return task{query, w.deps.Limiter.read, func(ctx context.Context) machine.Result {
			return w.result(machine.OK{}, store.Halt(ctx, row, job.Reason.Error()))
		}}
	case machine.Move:
		slot := w.batchSlot(false)
		if w.def.Leased {
			slot = w.deps.Limiter.Ack // nothing is delivered
		}
		return task{2 * query, slot, func(ctx context.Context) machine.Result { return w.result(machine.OK{}, w.move(ctx, row, job)) }}
	case machine.Ask:
		return task{askTime + time.Second, noLimit, func(ctx context.Context) machine.Result { return w.ask(ctx, job.Failure) }}
	}
	panic(fmt.Sprintf("no work for %T", job))
}

// noLimit is the slot of work that holds no connection.
func noLimit(context.Context) (release func(), err error) { return func() {}, nil }

// batchSlot waits for a slot for a batch, or for a delivery, of this projection's tenant. Events at which a process ended are
// tried one by one on a node, so that it becomes known which of them did it.
func (w *worker) batchSlot(suspect bool) slotFunc {
	slot := func(ctx context.Context) (func(), error) { return w.deps.Limiter.batch(ctx, w.id.Tenant) }
	if w.def.Leased {
		slot = func(ctx context.Context) (func(), error) {
			return w.deps.Limiter.delivery(ctx, w.id.Tenant, w.long.Load())
		}
	}
	if suspect {
		return func(ctx context.Context) (func(), error) { return w.deps.Limiter.suspect(ctx, slot) }
	}
	return slot
}

// result returns what a job ended with: ok, or the fault of err.
func (w *worker) result(ok machine.Result, err error) machine.Result {
	if err != nil {
		return w.fault(err)
	}
	return ok
}

// fault classifies an error of a statement of ours. Its text stays whole.
func (w *worker) fault(err error) *engine.Fault {
	fault := *w.deps.Store.Classify(err)
	if _, is := err.(*engine.Fault); !is {
		fault.Err = err
	}
	return &fault
}

// stop ends the job under way.
func (w *worker) stop() {
	if w.cancel != nil {
		w.cancel()
	}
}

// rest asks the job under way to stop where it can do so in order.
func (w *worker) rest() {
	if w.yield != nil {
		close(w.yield)
		w.yield = nil
	}
}

// move parks or skips an event.
func (w *worker) move(ctx context.Context, row engine.Lease, job machine.Move) error {
	f := job.Failure
	if job.Action == projection.ActionSkip {
		return w.deps.Store.Skip(ctx, row, f.Event.Position)
	}
	letter := projection.DeadLetter{Position: f.Event.Position, Stream: f.Event.Stream, Version: f.Event.Version, Type: f.Event.Type,
		Error: f.Err.Error(), Stack: f.Stack, Attempts: f.Attempt}
	return w.deps.Store.Park(ctx, row, letter, job.Action == projection.ActionParkStream)
}

// batch takes the steps of a batch.
func (w *worker) batch(ctx context.Context, run machine.Run, yield <-chan struct{}) machine.Result {
	read, err := w.reading(ctx, run.Reads())
	if err != nil {
		return run.Refused(w.fault(err))
	}
	defer read()
	run, step := run.Begin()
	for {
		var err error
		switch s := step.(type) {
		case machine.ReadPage:
			var page engine.Page
			if page, err = w.read(ctx, run.Row, s.Range); err == nil {
				run, step = run.Read(page)
			}
		case machine.FindParked:
			var parked map[string]bool
			if parked, err = w.deps.Store.ParkedStreams(ctx, run.Row, s.Streams); err == nil {
				run, step = run.Found(parked)
			}
		case machine.BeginAttempt:
			if err = w.deps.Store.BeginAttempt(ctx, run.Row, s.Attempt.Position, s.Attempt.Attempt); err == nil {
				run, step = run.Begun()
			}
		case machine.ApplyBatch:
			s.Batch.Yield = yield
			next := w.prefetch(ctx, run.Row, s.Prefetch)
			read()
			return w.applied(ctx, run, w.apply(ctx, run.Row, s.Batch), next)
		case machine.EndRun:
			return s.Result
		}
		if err != nil {
			return run.Refused(w.fault(err))
		}
	}
}

// applied returns how a batch ended, with the page that was read meanwhile.
func (w *worker) applied(ctx context.Context, run machine.Run, err error, next <-chan engine.Page) machine.Result {
	partial, found := partialOf(err), w.examine(ctx, err)
	if page, fetched := <-next; fetched {
		return run.Applied(partial, found.fault, found.outage, &page)
	}
	return run.Applied(partial, found.fault, found.outage, nil)
}

// prefetch reads a page if that can be done at once. The page, if any, comes on the channel, which is closed then. An error does
// not matter: the page is read again when it is needed.
func (w *worker) prefetch(ctx context.Context, row engine.Lease, r *engine.ReadRange) <-chan engine.Page {
	next := make(chan engine.Page, 1)
	if r == nil || !w.deps.Limiter.tryRead() {
		close(next)
		return next
	}
	go func() {
		defer close(next)
		defer w.deps.Limiter.doneReading()
		if page, err := w.read(ctx, row, *r); err == nil {
			next <- page
		}
	}()
	return next
}

// read reads a page of the projection's own, in the incarnation of the server in which its row was read.
func (w *worker) read(ctx context.Context, row engine.Lease, r engine.ReadRange) (engine.Page, error) {
	page, err := w.deps.Store.Read(ctx, row.ID.Tenant, r)
	if err == nil && page.Incarnation != row.Incarnation {
		err = projection.ErrIncarnationChanged
	}
	return page, err
}

// apply runs a batch or a delivery. It remembers whether a delivery took long, and lets cutShort end it.
func (w *worker) apply(ctx context.Context, row engine.Lease, batch engine.Batch) error {
	if w.def.Leased && len(batch.Events) > 0 {
		began := time.Now()
		defer func() { w.long.Store(time.Since(began) > longDelivery) }()
		delivery, cut := context.WithCancelCause(ctx)
		defer cut(nil)
		w.cut.Store(&cut)
		defer w.cut.Store(nil)
		ctx = delivery
	}
	return w.def.Apply(ctx, row, batch)
}

// errRevalidated ends a delivery whose lease another node may have.
var errRevalidated = fmt.Errorf("the database says that this node no longer holds the lease: %w", projection.ErrLeaseLost)

// errStopped ends a delivery whose projection this node no longer runs.
var errStopped = fmt.Errorf("the projection was stopped on this node: %w", projection.ErrLeaseLost)

// cutShort ends the delivery that is under way, if there is one, with that cause: no fence holds back what it sends.
func (w *worker) cutShort(cause error) {
	if cut := w.cut.Load(); cut != nil {
		(*cut)(cause)
	}
}

// reading waits for a slot for reads before a delivery that reads, since the delivery's own slot stands for no connection.
func (w *worker) reading(ctx context.Context, needed bool) (release func(), err error) {
	if !w.def.Leased || !needed {
		return func() {}, nil
	}
	release, err = w.deps.Limiter.read(ctx)
	return sync.OnceFunc(release), err
}

// briefly runs a short statement on the control schema, for a delivery within a slot for those.
func (w *worker) briefly(ctx context.Context, statement func() error) error {
	if w.def.Leased {
		release, err := w.deps.Limiter.Ack(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	return statement()
}
