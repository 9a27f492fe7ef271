package tests_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// errDown is the error of a service that is down.
var errDown = errors.New("the service is down")

func isDown(err error) bool { return errors.Is(err, errDown) }

// service is a service outside of the database that a handler depends on.
type service struct {
	down atomic.Bool
	mu   sync.Mutex
	// refused are the batches that called it while it was down.
	refused []refusal
}

type refusal struct {
	at     time.Time
	events int
}

// call is the call of a handler, in the middle of its batch.
func (s *service) call(events int) error {
	if !s.down.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, refusal{time.Now(), events})
	return fmt.Errorf("call: %w", errDown)
}

func (s *service) refusals() []refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]refusal(nil), s.refused...)
}

// mustWait checks that the refusals from the given index on are at least wait apart, and of one event each.
func (s *service) mustWait(t *testing.T, first int, wait time.Duration) {
	t.Helper()
	all := s.refusals()
	for i := first; i < len(all); i++ {
		if pause := all[i].at.Sub(all[i-1].at); pause < wait || all[i].events != 1 {
			t.Errorf("probe %d: %d events, %v after the call before it", i, all[i].events, pause)
		}
	}
}

// relies returns a batch handler that records its events and calls the service.
func (s *service) relies(name string) kit.BatchFunc {
	return func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
		if err := tx.Record(ctx, name, events...); err != nil {
			return err
		}
		return s.call(len(events))
	}
}

// guarded is a store with events, and a projection of them that opens its breaker at the first failure of its service.
type guarded struct {
	*kit.Bundle
	service
	first, last int64
	projection  millrace.Projection
}

func newGuarded(b *kit.Bundle, wait time.Duration) *guarded {
	g := &guarded{Bundle: b}
	g.first = g.Append("a", 20).Positions[0]
	g.last = g.Append("b", 20).Positions[19]
	g.down.Store(true)
	g.projection = millrace.Projection{Name: "p", MaxEvents: 16, Retry: kit.Soon(0),
		Handler: b.Store.Batch(g.relies("p")),
		Breaker: projection.BreakerPolicy{IsOutage: isDown, Failures: 1, OpenFor: wait}}
	return g
}

// opens waits until the breaker was opened, by that many refusals in all.
func (g *guarded) opens(rt *millrace.Runtime, refusals int) {
	g.T.Helper()
	g.Eventually(fmt.Sprintf("the breaker is open after %d refusals", refusals), func() bool {
		p := g.Status(rt, "p")
		return len(g.refusals()) >= refusals && p.Breaker == projection.BreakerOpen && p.State == admin.StateWaiting
	})
}

// closes waits until everything was handled, and checks that the outage left no trace.
func (g *guarded) closes(rt *millrace.Runtime, parked ...int64) {
	g.T.Helper()
	g.Reaches(rt, "p", g.last)
	g.Verify("p", parked...)
	if p := g.Status(rt, "p"); p.Breaker != projection.BreakerClosed || int(p.Parked) != len(parked) ||
		p.Skipped != 0 || p.Attempts != 0 {
		g.T.Errorf("the service is back, and status says %+v", p)
	}
	g.Eventually("it is live and gives no reason",
		func() bool { p := g.Status(rt, "p"); return p.State == admin.StateLive && p.Reason == "" })
}
