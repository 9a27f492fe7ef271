package tests_test

import (
	"slices"
	"sync"

	"github.com/millrace-go/millrace/observe"
)

// observed records what an observer gets.
type observed struct {
	mu     sync.Mutex
	events []any
}

// observer returns an Observer that records everything.
func (o *observed) observer() observe.Observer {
	return observe.Observer{
		BatchEnded:        record[observe.Batch](o),
		EventFailed:       record[observe.Failure](o),
		Decided:           record[observe.Decision](o),
		Replayed:          record[observe.Replay](o),
		BreakerChanged:    record[observe.Breaker](o),
		LeaseChanged:      record[observe.Lease](o),
		MarkHeld:          record[observe.Hold](o),
		EventsRead:        record[observe.Read](o),
		SlotWaited:        record[observe.Wait](o),
		ConnectionsWaited: record[observe.ConnectionWaits](o),
		SessionChanged:    record[observe.Session](o),
		DatabaseChanged:   record[observe.Database](o),
		ActorRestarted:    record[observe.Restart](o),
	}
}

func record[E any](o *observed) func(E) {
	return func(e E) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.events = append(o.events, e)
	}
}

// seen returns the recorded events of a type that match, in order.
func seen[E any](o *observed, match func(E) bool) (found []E) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range slices.Clone(o.events) {
		if e, ok := e.(E); ok && match(e) {
			found = append(found, e)
		}
	}
	return found
}
