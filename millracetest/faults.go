package millracetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// ErrInjected is the error of the faults.
var ErrInjected = errors.New("fault of the test")

// Always is a number of times for FailAt.
const Always = -1

// FailAt returns middleware that fails the event at a position the given number of times, or Always, before its handler
// is called. A batch with the event fails as a whole. Put it into Projection.Middleware. Like all faults of a Kit, it
// disturbs a projection in the Kit's tenant alone.
func (k *Kit) FailAt(position int64, times int) millrace.Middleware {
	var mu sync.Mutex
	failed := make(map[string]int)
	return k.before(func(name string, e event.Envelope) error {
		mu.Lock()
		defer mu.Unlock()
		if e.Position != position || failed[name] == times {
			return nil
		}
		failed[name]++
		return projection.At(position, fmt.Errorf("%w at position %d", ErrInjected, position))
	})
}

// Slow returns middleware that waits before each call of a handler, or until its context ends. With more than
// Projection.Timeout the call fails.
func (k *Kit) Slow(d time.Duration) millrace.Middleware {
	return k.disturb(func(ctx context.Context, _ string, events []event.Envelope, next millrace.HandleFunc) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return next(ctx, events)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// LostCommit returns middleware that fails the first call for each event after its handler has succeeded. So what the
// handler has written is rolled back, and it is called again with the same events. A handler of DeliverEach sends
// twice.
func (k *Kit) LostCommit() millrace.Middleware {
	return k.afterFirst(func(ctx context.Context) error {
		return projection.Retry(fmt.Errorf("%w: the commit is lost", ErrInjected))
	})
}

// lostMost is how many leases LostLease loses.
const lostMost = 5

// LostLease returns middleware that takes the lease away while the handler runs, at the first 5 calls. What the handler
// has written is rolled back, and another runtime calls it again with the same events. It has an effect within When and
// Repeatable.
func (k *Kit) LostLease() millrace.Middleware {
	var mu sync.Mutex
	lost := 0
	return k.afterFirst(func(ctx context.Context) error {
		mu.Lock()
		enough := lost == lostMost || !k.stop()
		if !enough {
			lost++
		}
		mu.Unlock()
		if enough {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// stop stops the runtime of When. It reports false if none runs.
func (b *bench) stop() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.interrupt == nil {
		return false
	}
	b.interrupted = true
	b.interrupt()
	return true
}

// disturb returns middleware that runs fault around the calls for the Kit's tenant. name is the name of the projection.
func (k *Kit) disturb(fault func(ctx context.Context, name string, events []event.Envelope,
	next millrace.HandleFunc) error) millrace.Middleware {
	return func(next millrace.HandleFunc) millrace.HandleFunc {
		return func(ctx context.Context, events []event.Envelope) error {
			id, _ := millrace.ProjectionFrom(ctx)
			if id.Tenant != k.tenant {
				return next(ctx, events)
			}
			return fault(ctx, id.Name, events, next)
		}
	}
}

// before returns middleware that fails a call if fault returns an error for one of its events.
func (k *Kit) before(fault func(name string, e event.Envelope) error) millrace.Middleware {
	return k.disturb(func(ctx context.Context, name string, events []event.Envelope, next millrace.HandleFunc) error {
		for _, e := range events {
			if err := fault(name, e); err != nil {
				return err
			}
		}
		return next(ctx, events)
	})
}

// afterFirst returns middleware that runs fault after the first successful call for the events from a position on, and
// returns its error.
func (k *Kit) afterFirst(fault func(ctx context.Context) error) millrace.Middleware {
	first := firsts()
	return k.disturb(func(ctx context.Context, name string, events []event.Envelope, next millrace.HandleFunc) error {
		if err := next(ctx, events); err != nil || !first(name, events[0]) {
			return err
		}
		return fault(ctx)
	})
}

// firsts returns a function that reports whether it is called for the first time with a projection and an event.
func firsts() func(name string, e event.Envelope) bool {
	type call struct {
		name     string
		position int64
	}
	var mu sync.Mutex
	seen := make(map[call]bool)
	return func(name string, e event.Envelope) bool {
		mu.Lock()
		defer mu.Unlock()
		again := seen[call{name, e.Position}]
		seen[call{name, e.Position}] = true
		return !again
	}
}
