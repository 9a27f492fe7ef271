package tests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap/zapcore"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestOutageOfAServiceParksAndCountsNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		const wait, failures = 100 * time.Millisecond, 3
		b.Append("a", 30)
		last := b.Append("b", 30).Positions[29]
		var services [2]service
		projections := make([]millrace.Projection, 2)
		for i, name := range []string{"guarded", "control"} {
			services[i].down.Store(true)
			projections[i] = millrace.Projection{
				Name: name, MaxEvents: 16, Retry: kit.Soon(1), MaxFailureShare: projection.NoLimit,
				Handler: b.Store.Batch(services[i].relies(name)),
			}
		}
		projections[0].Breaker = projection.BreakerPolicy{IsOutage: isDown, Failures: failures, OpenFor: wait}
		log, logs := kit.Logs()
		rt := b.Running(millrace.Config{Logger: log}, projections...)
		b.Eventually("the service was asked again and again",
			func() bool { return len(services[0].refusals()) >= failures+8 })
		if p := b.Is(rt, "guarded", admin.StateWaiting); p.Parked+p.Skipped+p.FailingPosition != 0 || p.Attempts != 0 ||
			p.Applied != 0 || !strings.Contains(p.Reason, "3 failures within 1m0s") {
			t.Errorf("while the service is down: %+v", p)
		}
		b.Eventually("the same outage fills the dead letters without a breaker",
			func() bool { return b.Status(rt, "control").Parked == 60 })

		for i := range services {
			services[i].down.Store(false)
		}
		b.Applied(rt, last, "guarded")
		if p := b.Status(rt, "guarded"); p.Parked+p.Skipped != 0 || p.Attempts != 0 ||
			p.Breaker != projection.BreakerClosed || p.Applied != 60 {
			t.Errorf("the service is back: %+v", p)
		}
		for i, r := range services[0].refusals()[:failures] {
			if r.events != 16 {
				t.Errorf("call %d, before the breaker opened, was narrowed to %d events", i, r.events)
			}
		}
		services[0].mustWait(t, failures, wait)
		for message, level := range map[string]zapcore.Level{"circuit breaker opened": zapcore.ErrorLevel,
			"circuit breaker closed": zapcore.InfoLevel} {
			said := logs.FilterMessageSnippet(message).All()
			if len(said) != 1 || said[0].Level != level || said[0].ContextMap()["projection"] != "guarded" {
				t.Errorf("%s: the log says %v", message, said)
			}
		}
		if said := logs.FilterMessageSnippet("infrastructure").All(); len(said) != 0 {
			t.Errorf("the outage of the service was logged as one of the database: %v", said)
		}
	})
}

func TestPoisonEventAmongAnOutageIsCountedAndParkedAsUsual(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		g := newGuarded(b, 50*time.Millisecond)
		// The probe handles the first event, which fails for another reason: so the service is back.
		poison := []int64{g.first, g.last - 7}
		reliable := g.relies("p")
		g.projection.Retry, g.projection.OnFailure = kit.Soon(2), projection.ActionPark
		g.projection.Handler = b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			err := reliable(ctx, tx, events)
			if err == nil && slices.ContainsFunc(events,
				func(e event.Envelope) bool { return slices.Contains(poison, e.Position) }) {
				return kit.ErrOnPurpose
			}
			return err
		})
		rt := g.Running(millrace.Config{}, g.projection)
		g.opens(rt, 4)
		mended := time.Now()
		g.down.Store(false)
		g.closes(rt, poison...)
		for _, l := range g.DeadLettersOf("p") {
			if l.Attempts != 3 || !strings.Contains(l.Error, "on purpose") || l.FirstFailedAt.Before(mended) {
				t.Errorf("the dead letter counts the outage that ended at %v: %+v", mended, l)
			}
		}
	})
}

func TestResumeProbesAtOnceAndOnce(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		g := newGuarded(b, time.Hour)
		rt := g.Runtime(millrace.Config{}, g.projection)
		remote := g.Another(millrace.Config{}, b.Recorders("other")...)
		g.Start(rt)
		for refusals := 1; refusals <= 3; refusals++ {
			g.opens(rt, refusals)
			g.Eventually("other nodes know why it waits", func() bool {
				p := g.Status(remote, "p")
				says := ": a failure; the last was "
				if refusals > 1 {
					says = fmt.Sprintf(": a failure, and %d since; the last was ", refusals-1)
				}
				return p.State == admin.StateWaiting && p.FailingPosition == 0 && p.Attempts == 0 && p.Breaker == "" &&
					strings.HasPrefix(p.Reason, "circuit breaker open until ") &&
					strings.HasSuffix(p.Reason, says+"call: the service is down")
			})
			if n := len(g.refusals()); n != refusals {
				t.Errorf("%d calls, want %d", n, refusals)
			}
			if refusals == 3 {
				g.down.Store(false)
			}
			g.Resume(remote, "p")
		}
		g.closes(rt)
		if p := g.Status(remote, "p"); p.State != admin.StateLive || p.Reason != "" {
			t.Errorf("other nodes do not know that it goes on: %+v", p)
		}
	})
}

func TestBreakerLeavesFaultsOfAnEventToItsPolicy(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		poison := b.Append("a", 20).Positions[7]
		last := b.Append("b", 20).Positions[19]
		var asked atomic.Int64
		all := func(error) bool { asked.Add(1); return true }
		panics := func(error) bool { panic("a question on purpose") }
		var projections []millrace.Projection
		for name, test := range map[string]struct {
			counts func(error) bool
			fail   func(error) error
		}{
			"request": {all, projection.Park}, "request inside of At": {all,
				func(err error) error { return projection.At(poison, projection.Park(err)) }},
			"permanent": {all, backoff.Permanent}, "does not count": {isDown, func(err error) error { return err }},
			"panics": {panics, func(err error) error { return err }},
		} {
			projections = append(projections, millrace.Projection{Name: name,
				MaxEvents: 16, OnFailure: projection.ActionPark, Retry: kit.Soon(0),
				Breaker: projection.BreakerPolicy{IsOutage: test.counts, Failures: 1, OpenFor: time.Hour},
				Handler: b.Store.Batch(kit.FailsAt(name, kit.Only(poison),
					func(context.Context, kit.Tx, int, int64) error { return test.fail(kit.ErrOnPurpose) }))})
		}
		var outages atomic.Int64
		projections = append(projections, millrace.Projection{Name: "infrastructure",
			Breaker: projection.BreakerPolicy{IsOutage: all, Failures: 1, OpenFor: time.Hour},
			Handler: b.Store.Batch(kit.FailsAt("infrastructure", kit.Only(poison),
				func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
					if outages.Add(1) > 3 {
						return nil
					}
					return b.Kind.Outages["disk full"](ctx, tx)
				}))})
		log, logs := kit.Logs()
		rt := b.Running(millrace.Config{Logger: log}, projections...)
		for _, p := range projections {
			b.Reaches(rt, p.Name, last)
			parked := []int64{poison}
			if p.Name == "infrastructure" {
				parked = nil
			}
			b.Verify(p.Name, parked...)
			if s := b.Status(rt, p.Name); int(s.Parked) != len(parked) || s.Breaker != projection.BreakerClosed {
				t.Errorf("%s: %+v", p.Name, s)
			}
		}
		if n := asked.Load(); n != 0 {
			t.Errorf("IsOutage was asked %d times about errors that are not its concern", n)
		}
		said := logs.FilterMessageSnippet("outage check gave no answer").All()
		if len(said) == 0 || said[0].Level != zapcore.ErrorLevel ||
			!strings.Contains(fmt.Sprint(said[0].ContextMap()["reason"]), "a question on purpose") ||
			said[0].ContextMap()["projection"] != "panics" {
			t.Errorf("the log says %v", said)
		}
	})
}

// A replay during an outage of the service is no failure of its event either. It is tried again, and keeps no live
// event waiting, since the event itself may be the cause.
func TestReplayThatMeetsAnOutageCountsNothingAndHoldsNothingUp(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		g := newGuarded(b, 50*time.Millisecond)
		g.down.Store(false)
		var refuse, mended atomic.Bool
		relies := g.relies("p")
		var replays atomic.Int64
		g.projection.Handler = b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			if events[0].Position != g.first {
				return relies(ctx, tx, events)
			}
			switch {
			case !mended.Load():
				return projection.Park(kit.ErrOnPurpose)
			case refuse.Load():
				replays.Add(1)
				return errDown
			}
			return relies(ctx, tx, events)
		})
		rt := g.Running(millrace.Config{}, g.projection)
		g.Reaches(rt, "p", g.last)
		mended.Store(true)
		refuse.Store(true)
		replayed := g.Replaying("p")
		g.Eventually("the replay is tried again", func() bool { return replays.Load() >= 4 })
		if p := g.Status(rt, "p"); p.Breaker != projection.BreakerClosed || p.State != admin.StateLive {
			t.Errorf("it is %s, its breaker %s", p.State, p.Breaker)
		}
		if now := g.DeadLettersOf("p"); len(now) != 1 || now[0].Attempts != 1 || now[0].Replays != 0 {
			t.Errorf("during the outage the letter is %+v", now)
		}
		refuse.Store(false)
		if o := <-replayed; o.Done != 1 || o.Failed != 0 {
			t.Errorf("replayed %+v", o)
		}
		if got := g.Positions("p"); len(got) != 40 {
			t.Errorf("%d events applied, want 40", len(got))
		}
	})
}

// During an outage dead letters can be discarded: that calls no handler.
func TestDeadLettersAreDiscardedWhileTheBreakerIsOpen(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		g := newGuarded(b, time.Hour)
		relies := g.relies("p")
		g.projection.Handler = b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			if events[0].Position == g.first {
				return projection.Park(kit.ErrOnPurpose)
			}
			return relies(ctx, tx, events)
		})
		rt := g.Running(millrace.Config{}, g.projection)
		g.opens(rt, 1)
		short, cancel := context.WithTimeout(g.Ctx, 3*time.Second)
		defer cancel()
		letters := g.Store.DeadLetters(millrace.ProjectionID{Name: "p"})
		o, err := letters.Replay(short, projection.DeadLetterFilter{All: true}, 10)
		if !errors.Is(err, projection.ErrCommandPending) {
			t.Fatalf("a replay meanwhile: %+v, %v", o, err)
		}
		if discarded, err := letters.Discard(g.Ctx, projection.DeadLetterFilter{All: true}, 10); err != nil ||
			discarded.Done != 1 {
			t.Errorf("discarded %+v, %v", discarded, err)
		}
		b.Must(letters.Cancel(g.Ctx, o.Command))
		if again, err := letters.Wait(g.Ctx, o.Command); err != nil || again.Done != 0 {
			t.Errorf("cancelled it came to %+v, %v", again, err)
		}
		if _, err := letters.Wait(g.Ctx, 77_777); !errors.Is(err, projection.ErrCommandNotFound) {
			t.Error(err)
		}
		if err := letters.Cancel(g.Ctx, 77_777); !errors.Is(err, projection.ErrCommandNotFound) {
			t.Error(err)
		}
	})
}

// A delivery that meets an outage keeps what it had acknowledged, and the rest waits.
func TestOutageDuringADeliveryCountsNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		g := newGuarded(b, 50*time.Millisecond)
		g.down.Store(false)
		var sent []int64 // one delivery at a time
		var looked atomic.Bool
		g.projection.Handler = millrace.DeliverEach(func(_ context.Context, e millrace.Delivered) error {
			if e.Position == g.first+5 && len(g.refusals()) < 3 {
				g.down.Store(true)
			}
			if err := g.call(1); err != nil {
				g.down.Store(len(g.refusals()) < 3 || !looked.Load())
				return err
			}
			sent = append(sent, e.Position)
			return nil
		})
		rt := g.Runtime(millrace.Config{}, g.projection)
		stop := g.Start(rt)
		g.opens(rt, 1)
		if p := g.Status(rt, "p"); p.Checkpoint != g.first+4 || p.Attempts != 0 || p.Parked != 0 {
			t.Errorf("during the outage: %+v", p)
		}
		looked.Store(true)
		g.Reaches(rt, "p", g.last)
		stop()
		g.mustWait(t, 1, 50*time.Millisecond)
		if len(g.refusals()) < 3 || len(g.DeadLettersOf("p")) != 0 {
			t.Errorf("%d refusals, letters %v", len(g.refusals()), g.DeadLettersOf("p"))
		}
		if len(sent) != 40 || !slices.IsSorted(sent) {
			t.Errorf("sent %v", sent)
		}
	})
}
