package actors

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
)

// history is a store with events at all positions from 1 on. reading, unless it is nil, is called in each read.
type history struct {
	engine.Events
	reading func(ctx context.Context, r engine.ReadRange)
}

func (h *history) Read(ctx context.Context, _ string, r engine.ReadRange) (engine.Page, error) {
	if h.reading != nil {
		h.reading(ctx, r)
	}
	to := min(r.UpTo, r.After+int64(r.Limit))
	page := engine.Page{To: to, Incarnation: 1}
	for position := r.After + 1; position <= to; position++ {
		page.Events = append(page.Events, event.Envelope{Position: position})
	}
	return page, ctx.Err()
}

// newAhead returns a worker without an actor.
func newAhead(t *testing.T, store *history, apply engine.ApplyFunc) *worker {
	deps := &Deps{System: NewSystem(zap.NewNop()), Store: Store{Events: store, Plane: control.On(outage{})},
		Log: zap.NewNop(), Timing: Timing{QueryTimeout: time.Minute},
		Limiter: NewLimiter(Limits{Connections: 10, Batches: 2, Log: zap.NewNop()})}
	deps.Init()
	t.Cleanup(deps.Wait)
	t.Cleanup(func() { deps.GiveUp(context.Canceled) })
	return &worker{fed: &intake{},
		deps: deps, def: &engine.Definition{MaxEvents: 2,
			MaxBytes: 1 << 20, Timeout: time.Minute, Batches: engine.Batches{Apply: apply}},
	}
}

// begun returns the run that an effect begins, nil if none does.
func begun(effects []machine.Effect) (run *machine.BatchRun, op int) {
	for _, e := range effects {
		if start, is := e.(machine.Start); is {
			if job, is := start.Job.(machine.Apply); is {
				return &job.Run, start.Op
			}
		}
	}
	return nil, 0
}

func TestReadAheadMayLastLongerThanItsBatch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const head, batchesOfARead = 50, 4
	store := &history{}
	var applied []int64
	var reads []int64
	ends := make(chan struct{}, head)
	store.reading = func(_ context.Context, r engine.ReadRange) {
		// Each read but the first ends when two more batches have ended, the one with which it began and the next one.
		reads = append(reads, r.After)
		if len(reads) > 1 {
			for range 2 {
				select {
				case <-ends:
				case <-ctx.Done():
				}
			}
		}
	}
	w := newAhead(t, store, nil)
	w.def.Apply = func(_ context.Context, _ engine.Lease, batch engine.Batch) error {
		for i := range batch.Events {
			applied = append(applied, batch.Events[i].Position)
		}
		if n := len(applied) / 2 % batchesOfARead; n == 3 || n == 0 {
			ends <- struct{}{}
		}
		return nil
	}
	m := machine.New(&machine.Config{
		Def: w.def, HeartbeatInterval: time.Minute, AdvanceEvery: time.Minute, Start: time.Now(),
	},
		engine.Lease{Owner: "n", Epoch: 1, Incarnation: 1})
	var effects []machine.Effect
	step := func(in machine.Input) { effects = m.Step(in, time.Now()) }
	m.LeaseDeadline = time.Now().Add(time.Hour)
	step(machine.Started{})
	step(machine.TailAdvanced{Tail: machine.Tail{Mark: head, From: head, Incarnation: 1}})
	for {
		run, op := begun(effects)
		if run == nil {
			break
		}
		step(machine.Done{Op: op, Result: w.batch(ctx, *run, nil, true, nil)})
	}
	if ctx.Err() != nil {
		t.Fatalf("a batch waited for the read that began with it: %d events were applied after the reads %d",
			len(applied), reads)
	}
	if len(applied) != head || !slices.IsSorted(applied) || applied[0] != 1 || applied[head-1] != head {
		t.Errorf("the events %d were applied, want 1 to %d", applied, head)
	}
	if want := []int64{0, 8, 16, 24, 32, 40, 48}; !slices.Equal(reads, want) {
		t.Errorf("events were read after %d, want %d", reads, want)
	}
}

func TestReadAheadThatIsNotNeededIsCancelled(t *testing.T) {
	lease := engine.Lease{Incarnation: 1}
	for name, end := range map[string]func(w *worker){
		"the actor stops": func(w *worker) { w.stop() },
		"the buffer ends elsewhere": func(w *worker) {
			w.keepAhead(machine.BatchRun{Lease: lease, Buffer: machine.Buffer{To: 7}})
		},
		"the server crashed meanwhile": func(w *worker) {
			w.keepAhead(machine.BatchRun{Lease: engine.Lease{Incarnation: 2}, Buffer: machine.Buffer{To: 8}})
		},
		"the runtime ends":              func(w *worker) { w.deps.GiveUp(context.Canceled) },
		"the actor stopped just before": func(*worker) {},
	} {
		t.Run(name, func(t *testing.T) {
			cancelled := make(chan bool, 2)
			store := &history{reading: func(ctx context.Context, _ engine.ReadRange) {
				select {
				case <-ctx.Done():
					cancelled <- true
				case <-time.After(time.Minute):
					cancelled <- false
				}
			}}
			w := newAhead(t, store, nil)
			ctx, cancel := context.WithCancel(t.Context())
			if name == "the actor stopped just before" {
				cancel()
			}
			next := func(after int64) machine.ReadPage {
				return machine.ReadPage{Range: engine.ReadRange{After: after, UpTo: 10, Limit: 8}}
			}
			ahead := next(8)
			w.prefetch(ctx, lease.Incarnation, &ahead)
			end(w)
			if !<-cancelled {
				t.Error("the read was not cancelled")
			}
			cancel()
			store.reading = nil
			page, err := w.page(t.Context(), lease.Incarnation, next(7))
			if err != nil || len(page.Events) != 3 {
				t.Errorf("the next read returned %d events, %v", len(page.Events), err)
			}
		})
	}
}
