package kit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
)

// Counted is the body of the events of Bundle.Append.
type Counted struct {
	I int `json:"i"`
}

// EventType implements event.Typed.
func (Counted) EventType() string { return "counted" }

// Noted is the body of another type of events.
type Noted struct {
	I int `json:"i"`
}

// EventType implements event.Typed.
func (Noted) EventType() string { return "noted" }

// SomeEvents returns n events with the bodies 0 to n-1.
func SomeEvents(n int) []event.Event {
	events := make([]event.Event, n)
	for i := range events {
		events[i] = event.Event{Type: "counted", Body: fmt.Appendf(nil, "%d", i)}
	}
	return events
}

// Collect returns the events of a read until its error.
func Collect(read iter.Seq2[event.Envelope, error]) (events []event.Envelope, err error) {
	for e, err := range read {
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// AllEvents returns all events of a tenant, in order.
func AllEvents(ctx context.Context, tenant Tenant) ([]event.Envelope, error) {
	return Collect(tenant.ReadAll(ctx, event.ReadOptions{}))
}

// PositionsOf returns the positions of events.
func PositionsOf(events []event.Envelope) (positions []int64) {
	for _, e := range events {
		positions = append(positions, e.Position)
	}
	return positions
}

// MustAppend appends events to a tenant.
func (b *Bundle) MustAppend(tenant Tenant, stream string, expected event.Expected,
	events ...event.Event) event.Appended {
	b.T.Helper()
	result, err := tenant.Append(b.Ctx, stream, expected, events...)
	b.Must(err)
	return result
}

// Collect returns the events of a read.
func (b *Bundle) Collect(read iter.Seq2[event.Envelope, error]) []event.Envelope {
	b.T.Helper()
	events, err := Collect(read)
	b.Must(err)
	return events
}

// All returns all events of a tenant, in order.
func (b *Bundle) All(tenant Tenant) []event.Envelope {
	b.T.Helper()
	events, err := AllEvents(b.Ctx, tenant)
	b.Must(err)
	return events
}

// MustHave checks that the default tenant has that many events, and that no others have drawn positions: the next event
// follows them.
func (b *Bundle) MustHave(events int) {
	b.T.Helper()
	if n := len(b.All(b.Store)); n != events {
		b.T.Errorf("%d events, want %d", n, events)
	}
	if next := b.Append("next", 1).Positions[0]; next != int64(events)+1 {
		b.T.Errorf("the next position is %d after %d events", next, events)
	}
}

// CountWakes counts the wake-ups of each tenant from now on.
func (b *Bundle) CountWakes() (count func(tenant string) int) {
	var mu sync.Mutex
	var woken []string
	b.T.Cleanup(b.Store.Engine().OnWake(engine.Waker{Wake: func(tenant string, _ int64, _ *engine.Page) {
		mu.Lock()
		defer mu.Unlock()
		woken = append(woken, tenant)
	}}))
	return func(tenant string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, w := range woken {
			if w == tenant {
				n++
			}
		}
		return n
	}
}

// Together calls fn n times at once.
func Together(n int, fn func(i int) error) error {
	errs := make([]error, n)
	begin := make(chan struct{})
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			<-begin
			errs[i] = fn(i)
		})
	}
	close(begin)
	group.Wait()
	return errors.Join(errs...)
}
