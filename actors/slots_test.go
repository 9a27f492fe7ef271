package actors

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/fair"
	"github.com/millrace-go/millrace/internal/machine"
)

// opening is the begin of a batch. Its state is not guarded: only one goroutine may have it at any time.
type opening struct {
	begun bool
	open  *atomic.Int64 // how many are begun and not used
}

func (o *opening) begin() {
	o.begun = true
	o.open.Add(1)
}

func (o *opening) Drop() {
	if o.begun {
		o.begun = false
		o.open.Add(-1)
	}
}

// endBatch does what the end of a batch does: it begins the next one if it can, and passes the slot on.
func endBatch(s *slot, fails, late bool) {
	next, _ := s.Promise().(*opening)
	runtime.Gosched()
	if late {
		s.breakPromise()
	}
	if fails || next == nil {
		return
	}
	next.begin()
	if !s.Pass() {
		next.Drop()
	}
}

// Requests end, and batches fail, at any moment, also while a slot is promised.
func TestPromisedSlotsAreNeitherLostNorDoubled(t *testing.T) {
	const all, perTenant, tenants, rounds = 4, 2, 5, 300
	names := tenantNames(tenants)
	l := serving(Limits{Connections: 8, Batches: all, BatchesPerTenant: perTenant}, names...)
	var inUse [tenants + 1]atomic.Int64
	var open, begun atomic.Int64
	var group sync.WaitGroup
	for i := range 40 {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		tenant := i % tenants
		group.Go(func() {
			for range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(3) == 0 {
					go cancel()
				}
				var own engine.Opening
				if random.IntN(4) > 0 {
					own = &opening{open: &open}
				}
				in, err := l.batchInTurn(ctx, l.flow(names[tenant], fmt.Sprint("p", i), 1+i%3), own)
				if err == nil {
					if n, m := inUse[tenant].Add(1), inUse[tenants].Add(1); n > perTenant || m > all {
						t.Errorf("a tenant has %d slots, all have %d", n, m)
					}
					if o, _ := in.opening.(*opening); o != nil && o.begun {
						begun.Add(1)
					}
					runtime.Gosched()
					inUse[tenant].Add(-1)
					inUse[tenants].Add(-1)
					if random.IntN(8) > 0 {
						in.drop() // which is also the use of it
						endBatch(in, random.IntN(5) == 0, random.IntN(5) == 0)
					}
					in.drop()
					in.release()
				}
				cancel()
			}
		})
	}
	group.Wait()
	if n := open.Load(); n != 0 || begun.Load() == 0 {
		t.Errorf("of %d batches that were begun in advance %d are open", begun.Load(), n)
	}
	for i := range all { // all slots are free again
		if _, err := l.batch(t.Context(), l.flow(names[i%tenants], "p", 1)); err != nil {
			t.Error(err)
		}
	}
}

// waitsFor requests a slot in a goroutine of its own.
func (s *slots) waitsFor(ctx context.Context, tenant string, o engine.Opening) <-chan *slot {
	got := make(chan *slot, 1)
	go func() {
		if r, err := s.claim(ctx, fair.Flow{Tenant: tenant}, o); err == nil {
			got <- r
		}
		close(got)
	}()
	synctest.Wait()
	return got
}

func TestBatchGetsThePromisedSlotWhenItIsBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, 0)
		first := <-s.waitsFor(t.Context(), "a", nil)
		second := s.waitsFor(t.Context(), "b", &opening{open: new(atomic.Int64)})
		third := s.waitsFor(t.Context(), "c", nil)
		promised := first.Promise()
		synctest.Wait()
		if promised == nil || len(second) != 0 {
			t.Fatal("the slot is not promised, or the batch has it before it is free")
		}
		if !first.Pass() {
			t.Fatal("the batch no longer waits")
		}
		got := <-second
		first.release() // does nothing any more
		synctest.Wait()
		if got.opening != promised || len(third) != 0 {
			t.Error("the slot was released twice, or the opening is another one")
		}
		got.release()
		(<-third).release()
	})
}

func TestBatchThatIsNotBegunGetsThePromisedSlotAtItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, 0)
		first := <-s.waitsFor(t.Context(), "a", nil)
		own := &opening{open: new(atomic.Int64)}
		second := s.waitsFor(t.Context(), "b", own)
		first.Promise()
		first.release()
		got := <-second
		if got.opening != engine.Opening(own) || own.begun {
			t.Errorf("got %+v", own)
		}
		got.release()
	})
}

func TestRequestThatEndsGivesThePromisedSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, 0)
		first := <-s.waitsFor(t.Context(), "a", nil)
		ctx, cancel := context.WithCancel(t.Context())
		second := s.waitsFor(ctx, "b", &opening{open: new(atomic.Int64)})
		first.Promise()
		cancel()
		if r := <-second; r != nil {
			t.Error("a request that ended has a slot")
		}
		third := s.waitsFor(t.Context(), "c", nil)
		if len(third) != 0 || first.Pass() {
			t.Error("the slot of a batch that has not ended was given to another one")
		}
		first.release()
		(<-third).release()
	})
}

// The end of a batch may take long. The batch that has its promise gets another slot that becomes free.
func TestBatchDoesNotWaitLongForAPromisedSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2, 0)
		slow, other := <-s.waitsFor(t.Context(), "a", nil), <-s.waitsFor(t.Context(), "a", nil)
		own := &opening{open: new(atomic.Int64)}
		waits := s.waitsFor(t.Context(), "b", own)
		promised, _ := slow.Promise().(*opening)
		began := time.Now()
		other.release() // no request but the promised one could have it
		synctest.Wait()
		if len(waits) != 0 {
			t.Error("the promise was broken at once")
		}
		got := <-waits
		if waited := time.Since(began); waited > promiseTime {
			t.Errorf("it waited for %v", waited)
		}
		if got.opening != nil {
			t.Error("the batch has an opening that the slow one may begin")
		}
		promised.begin()
		if slow.Pass() {
			t.Error("the slot was passed on to a batch that has another one")
		}
		promised.Drop()
		got.release()
		slow.release()
		for range 2 {
			if s.tryAcquire(fair.Flow{}) == nil {
				t.Error("a slot is lost")
			}
		}
	})
}

// A request whose promise was broken has had its turn, so it precedes those that came after it. With slow commits, all
// promises are broken, and some requests would never be granted if they lost their turns by that.
func TestBatchWhosePromiseIsBrokenKeepsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2, 0)
		slow, other := <-s.waitsFor(t.Context(), "a", nil), <-s.waitsFor(t.Context(), "a", nil)
		waits := s.waitsFor(t.Context(), "b", &opening{open: new(atomic.Int64)})
		slow.Promise()
		later := s.waitsFor(t.Context(), "c", &opening{open: new(atomic.Int64)})
		<-time.After(promiseTime + 1)
		synctest.Wait()
		if len(waits)+len(later) != 0 {
			t.Fatal("a request has a slot that is not free")
		}
		if other.Promise() != nil {
			t.Error("the next slot is promised to a later request")
		}
		other.release()
		(<-waits).release()
		(<-later).release()
		slow.release()
	})
}

// A commit that ends late still begins the next batch, if that one waits.
func TestBatchThatIsBegunLateGetsThePromisedSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, 0)
		slow := <-s.waitsFor(t.Context(), "a", nil)
		waits := s.waitsFor(t.Context(), "b", &opening{open: new(atomic.Int64)})
		promised := slow.Promise()
		<-time.After(promiseTime + 1)
		synctest.Wait()
		if !slow.Pass() {
			t.Error("the batch no longer waits")
		}
		if got := <-waits; got.opening != promised {
			t.Error("the batch does not use the transaction that was begun for it")
		}
	})
}

func TestOnlyBatchesThatGoStraightToTheirHandlerAreBegunInAdvance(t *testing.T) {
	made := func(engine.Lease) engine.Opening { return &opening{} }
	ready := machine.BatchRun{Buffer: machine.Buffer{Events: []event.Envelope{{Position: 1}}}}
	for name, test := range map[string]struct {
		make   func(engine.Lease) engine.Opening
		change func(r *machine.BatchRun)
		want   bool
	}{
		"ready":          {made, func(*machine.BatchRun) {}, true},
		"to be read":     {made, func(r *machine.BatchRun) { r.Buffer.Events = nil }, false},
		"parked streams": {made, func(r *machine.BatchRun) { r.Lease.ParkedStreams = true }, false},
		"quarantined":    {made, func(r *machine.BatchRun) { r.Quarantine = 1 }, false},
		"fresh":          {made, func(r *machine.BatchRun) { r.Fresh = true }, false},
		"kept apart":     {made, func(r *machine.BatchRun) { r.Apart = []int32{1} }, false},
		"no such store":  {nil, func(*machine.BatchRun) {}, false},
	} {
		run := ready
		test.change(&run)
		w := &worker{def: &engine.Definition{Batches: engine.Batches{Opening: test.make}}}
		if got := w.opening(machine.Apply{Run: run}) != nil; got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		w = &worker{def: &engine.Definition{Batches: engine.Batches{Shares: test.make != nil}}}
		if got := w.shares(machine.Apply{Run: run}); got != test.want {
			t.Errorf("%s: it needs no connection: %v", name, got)
		}
	}
}
