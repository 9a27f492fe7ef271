package actors

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
)

// batchOf returns a task that ends at once with a batch of n events.
func batchOf(o *outside, n int) task {
	result := machine.RunResult{End: machine.RunApplied, Batch: engine.Batch{Events: envelopes(int64(n)), To: int64(n)}}
	return task{
		limit: time.Minute, slot: o.deps.Limiter.readSlotForTest,
		work: func(context.Context) machine.Result { return result },
	}
}

func (l *Limiter) readSlotForTest(ctx context.Context) (func(), error) {
	return l.read(ctx, l.feed("a"))
}

func TestBatchWithoutObserverCostsNoAllocation(t *testing.T) {
	o := surround(t)
	w := &worker{fed: &intake{}, deps: o.deps, def: o.def, id: o.lease.ID}
	job := batchOf(o, 100)
	measure := func() float64 { return testing.AllocsPerRun(200, func() { w.do(&running{}, job) }) }
	without := measure()
	o.deps.Observer.BatchEnded = func(observe.Batch) {}
	if with := measure(); with != without {
		t.Errorf("a batch allocates %v times without an observer, %v times with one that does nothing", without, with)
	}
	if n := testing.AllocsPerRun(200, func() { o.deps.leaseChanged(o.lease.ID, 1, observe.LeaseClaimed) }); n != 0 {
		t.Errorf("a change of a lease allocates %v times without an observer", n)
	}
}

func BenchmarkBatchObserved(b *testing.B) {
	o := &outside{
		deps: &Deps{Limiter: NewLimiter(Limits{Connections: 8}), Registry: newRegistry()}, def: &engine.Definition{},
	}
	o.deps.lifetime.init()
	for name, observer := range map[string]observe.Observer{"none": {},
		"nothing": {BatchEnded: func(observe.Batch) {}}} {
		o.deps.Observer = observer
		w := &worker{fed: &intake{}, deps: o.deps, def: o.def}
		job := batchOf(o, 100)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.do(&running{}, job)
			}
		})
	}
}

func TestObserverGetsBatchesAsTheyEnded(t *testing.T) {
	o := surround(t)
	w := &worker{fed: &intake{}, deps: o.deps, def: o.def, id: o.lease.ID}
	list := envelopes(4)
	list[0].Time = time.Unix(7, 0)
	size := 0
	for _, e := range list {
		size += e.Size()
	}
	failed := &faults.Fault{Class: faults.Unclear, Err: context.Canceled}
	partial := &engine.PartialResult{
		To: 3, Rejected: []engine.Rejected{{DeadLetter: projection.DeadLetter{Position: 2}}}, Err: context.Canceled,
	}
	batch := engine.Batch{Events: list, BlockedByStream: []event.Envelope{{Position: 9}}, To: 9}
	all := observe.Batch{Projection: o.lease.ID, Events: 4, Bytes: size, Oldest: time.Unix(7, 0), Position: 1}
	with := func(change func(b *observe.Batch)) observe.Batch {
		b := all
		change(&b)
		return b
	}
	for name, test := range map[string]struct {
		result machine.RunResult
		want   observe.Batch
	}{
		"applied": {machine.RunResult{End: machine.RunApplied, Batch: batch, Live: true},
			with(func(b *observe.Batch) { b.Applied, b.Parked, b.Position, b.Live = 4, 1, 9, true })},
		"failed": {machine.RunResult{End: machine.RunApplied, Batch: batch, Fault: failed},
			with(func(b *observe.Batch) { b.Fault, b.Err = observe.FaultUnclear, failed.Err })},
		"an outage": {machine.RunResult{End: machine.RunApplied, Batch: batch, Fault: failed, Outage: true},
			with(func(b *observe.Batch) { b.Fault, b.Err = observe.FaultOutage, failed.Err })},
		"a part": {machine.RunResult{End: machine.RunApplied, Batch: batch, Fault: failed, Partial: partial},
			with(func(b *observe.Batch) {
				b.Applied, b.Parked, b.Position, b.Fault, b.Err = 2, 1, 3, observe.FaultUnclear, failed.Err
			})},
		"faulted": {machine.RunResult{End: machine.RunFaulted, Fault: failed},
			observe.Batch{Projection: o.lease.ID, Position: 1, Fault: observe.FaultUnclear, Err: failed.Err}},
		"empty": {machine.RunResult{End: machine.RunEmpty}, observe.Batch{}},
		"full":  {machine.RunResult{End: machine.RunFull}, observe.Batch{}},
	} {
		var got observe.Batch
		w.deps.Observer.BatchEnded = func(b observe.Batch) { got = b }
		test.result.Checkpoint = 1
		w.observe(test.result, 0, 0)
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, test.want)
		}
	}
}

func TestFaultsOfObserversAreTheClassesOfTheEngine(t *testing.T) {
	for class, fault := range map[faults.Class]observe.Fault{
		faults.Handler: observe.FaultHandler, faults.Infrastructure: observe.FaultInfrastructure,
		faults.Unclear:     observe.FaultUnclear,
		faults.Interrupted: observe.FaultInterrupted, faults.MissingObject: observe.FaultMissingObject,
		faults.Configuration: observe.FaultConfiguration, faults.LeaseLost: observe.FaultLeaseLost,
	} {
		if string(class) != string(fault) {
			t.Errorf("the class %q is the fault %q", class, fault)
		}
	}
}

func TestObserverSeesOnlyRequestsThatWaitForTheirSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []observe.Wait
		l := serving(Limits{Connections: 4, Batches: 1, Waited: func(w observe.Wait) { waits = append(waits, w) }}, "a")
		release, err := l.batch(t.Context(), l.flow("a", "p", 1))
		if err != nil || len(waits) != 0 {
			t.Fatal(err, waits)
		}
		time.AfterFunc(time.Second, release)
		if _, err := l.batch(t.Context(), l.flow("a", "q", 1)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := l.batch(ctx, l.flow("a", "r", 1)); err == nil {
			t.Fatal("there are two slots")
		}
		if len(waits) != 2 ||
			waits[0] != (observe.Wait{Slot: observe.SlotBatch, Tenant: "a", Name: "q", Duration: time.Second}) ||
			waits[1].Name != "r" || waits[1].Duration != time.Minute || waits[1].Err == nil {
			t.Errorf("waits: %+v", waits)
		}
	})
}
