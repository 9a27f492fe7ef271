package actors

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/fair"
	"github.com/millrace-go/millrace/internal/observing"
	"github.com/millrace-go/millrace/observe"
)

// promiseTime is how long a request waits at most for the slot that it is promised. The message that ends a batch takes
// far less. But a deferred trigger, a lock or a standby can hold it up, and then the request must get the next slot
// that is free.
const promiseTime = 50 * time.Millisecond

// slots is a fair.Scheduler for several goroutines.
type slots struct {
	kind      observe.Slot
	waited    func(observe.Wait)
	perTenant int // 0 means no limit

	mu        sync.Mutex
	scheduler *fair.Scheduler
}

func newSlots(all, perTenant int) *slots {
	return &slots{perTenant: perTenant, scheduler: fair.New(all)}
}

// slot is a goroutine's request for a slot, and then its slot. It implements engine.Slot. slots.mu guards it.
type slot struct {
	slots   *slots
	request *fair.Request
	// granted is closed when a request that waits gets its slot.
	granted chan struct{}
	// opening is nil if there is none, or if another slot than the promised one was granted: the batch that ends may
	// begin it at any time. From granted on it belongs to the slot alone.
	opening engine.Opening
	// heir has the promise of this slot, which late breaks, and from has promised its slot to this request.
	heir, from *slot
	late       *time.Timer
	released   bool
}

// acquire waits for a slot. If ctx ends first, neither the server nor an event is at fault.
func (s *slots) acquire(ctx context.Context, flow fair.Flow) (release func(), err error) {
	r, err := s.claim(ctx, flow, nil)
	if err != nil {
		return nil, err
	}
	return r.release, nil
}

// claim is acquire for a slot that can be promised.
func (s *slots) claim(ctx context.Context, flow fair.Flow, opening engine.Opening) (*slot, error) {
	r := s.slot(flow, opening)
	s.mu.Lock()
	granted := s.request(r)
	s.mu.Unlock()
	if !granted {
		if err := s.wait(ctx, r, flow); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// slot returns a slot that is not requested yet.
func (s *slots) slot(flow fair.Flow, opening engine.Opening) *slot {
	r := &slot{slots: s, request: &fair.Request{Flow: flow}, opening: opening}
	r.request.Owner = r
	return r
}

// request requests a slot. It returns false if the request has to wait.
func (s *slots) request(r *slot) (granted bool) {
	granted = s.scheduler.Acquire(r.request)
	if !granted {
		r.granted = make(chan struct{})
	}
	return granted
}

// wait waits until a request gets its slot.
func (s *slots) wait(ctx context.Context, r *slot, flow fair.Flow) (err error) {
	began := time.Now()
	select {
	case <-r.granted:
	case <-ctx.Done():
		r.withdraw()
		if context.Cause(ctx) == engine.ErrNotNeeded {
			return engine.ErrNotNeeded
		}
		err = &faults.Fault{Class: faults.Infrastructure, Err: fmt.Errorf("wait for a slot: %w", ctx.Err())}
	}
	observing.Call(s.waited, observe.Wait{Slot: s.kind,
		Tenant: flow.Tenant, Name: flow.Projection, Duration: time.Since(began), Err: err})
	return err
}

// tryAcquire returns nil if no slot is free at once.
func (s *slots) tryAcquire(flow fair.Flow) (release func()) {
	r := s.slot(flow, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.scheduler.TryAcquire(r.request) {
		return nil
	}
	return r.release
}

// limitTenants sets whether the limit for each tenant holds.
func (s *slots) limitTenants(holds bool) {
	perTenant := 0
	if holds {
		perTenant = s.perTenant
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, next := range s.scheduler.LimitTenants(perTenant) {
		wake(next)
	}
}

// wake wakes the goroutine whose request got its slot. If another one was promised to it, it does not wait for that any
// more.
func wake(next *fair.Request) {
	if next == nil {
		return
	}
	r := next.Owner.(*slot)
	if r.from != nil {
		r.from.parted()
		r.opening = nil
	}
	close(r.granted)
}

// parted ends the promise of a slot, whether it was kept or not.
func (r *slot) parted() {
	r.late.Stop()
	r.heir.from, r.heir = nil, nil
}

// withdraw withdraws a request. If the request has just got its slot, the slot is passed on.
func (r *slot) withdraw() {
	if !r.withdrawn() {
		r.drop()
		r.release()
	}
}

// withdrawn withdraws a request that has no slot yet. It returns false if the request has its slot.
func (r *slot) withdrawn() bool {
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	if r.from == nil {
		return r.slots.scheduler.Cancel(r.request)
	}
	r.from.takeBack()
	return true
}

// drop drops the opening if it was begun and not used.
func (r *slot) drop() {
	if r.opening != nil {
		r.opening.Drop()
	}
}

// release releases the slot, unless it was passed on.
func (r *slot) release() {
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	if !r.released {
		r.end()
	}
}

// end ends the use of the slot, and wakes the request that gets it.
func (r *slot) end() {
	r.released = true
	wake(r.slots.scheduler.Release(r.request))
	if heir := r.heir; heir != nil {
		r.parted()
		close(heir.granted)
	}
}

// Promise implements engine.Slot.
func (r *slot) Promise() engine.Opening {
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	next := r.slots.scheduler.Promise(r.request)
	if next == nil {
		return nil
	}
	r.heir = next.Owner.(*slot)
	r.heir.from = r
	r.late = time.AfterFunc(promiseTime, r.breakPromise)
	return r.heir.opening
}

// Pass implements engine.Slot.
func (r *slot) Pass() bool {
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	if r.heir == nil {
		return false
	}
	r.end()
	return true
}

// breakPromise makes the request that this slot is promised to get any other slot, if one is free before this one.
func (r *slot) breakPromise() {
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	if r.heir != nil {
		wake(r.slots.scheduler.Break(r.request))
	}
}

// takeBack takes the promise of this slot back.
func (r *slot) takeBack() {
	r.parted()
	wake(r.slots.scheduler.TakeBack(r.request))
}
