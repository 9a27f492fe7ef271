package tests_test

import (
	"context"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/tests/kit"
)

// step is where a process is killed that delivers its third event: what it does before the effect, after it, and after the
// acknowledgement.
type step struct {
	before, after, acknowledged func(b *kit.Bundle, position int64)
	// effect and ack say whether the event has them then. unsure means that there may be an acknowledgement or not.
	effect, ack, unsure bool
}

func dies(*kit.Bundle, int64)  { kit.Die() }
func lives(*kit.Bundle, int64) {}
func waits(*kit.Bundle, int64) { select {} }

var deliverySteps = map[string]step{
	"before the effect":                              {before: dies, after: lives, acknowledged: lives},
	"between effect and acknowledgement":             {before: lives, after: dies, acknowledged: lives, effect: true},
	"once an acknowledgement can be seen":            {before: lives, after: diesOnceAcknowledged, acknowledged: waits, effect: true, ack: true},
	"while the acknowledgement is on its way":        {before: lives, after: diesSoon, acknowledged: dies, effect: true, unsure: true},
	"after the acknowledgement of a delivered event": {before: lives, after: lives, acknowledged: dies, effect: true, ack: true},
}

// diesOnceAcknowledged kills the process as soon as others can see the acknowledgement.
func diesOnceAcknowledged(b *kit.Bundle, position int64) {
	watcher := b.Runtime(millrace.Config{})
	go func() {
		for at := int64(0); at < position; {
			if status, err := watcher.Status(b.Ctx); err == nil {
				at = status.Projection(millrace.ProjectionID{Name: "p"}).Checkpoint
			}
		}
		kit.Die()
	}()
}

// diesSoon kills the process after about as long as an acknowledgement takes.
func diesSoon(b *kit.Bundle, _ int64) {
	go func() {
		_, _, _ = b.Store.Commands(b.Ctx)
		kit.Die()
	}()
}

// delivering records its effects outside of every transaction of the delivery.
func delivering(b *kit.Bundle, s step) millrace.Projection {
	n := 0
	return millrace.Projection{Name: "p", MaxEvents: 10, Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
		for _, e := range d.Events() {
			n++
			if n == 3 {
				s.before(b, e.Position)
			}
			if err := b.Store.Arrive(b.Ctx, kit.Arrival{Position: e.Position, Token: d.Token(e)}); err != nil {
				return err
			}
			if n == 3 {
				s.after(b, e.Position)
			}
			if err := d.Ack(ctx, e.Position); err != nil {
				return err
			}
			if n == 3 {
				s.acknowledged(b, e.Position)
			}
		}
		return nil
	})}
}

// mustHaveArrivedIn is MustHaveArrived for the effects in the store.
func mustHaveArrivedIn(b *kit.Bundle, positions []int64, repeats int) (arrivals []kit.Arrival) {
	b.T.Helper()
	arrivals, err := b.Store.Arrived(b.Ctx)
	b.Must(err)
	b.MustHaveArrived(arrivals, positions, repeats)
	return arrivals
}

func TestKilledDeliveryRepeatsOnlyTheEventInProgress(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for way, s := range deliverySteps {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				b := kind.New(t)
				positions := b.Append("a", 25).Positions
				watcher := b.Runtime(millrace.Config{})
				repeats := 0
				for range 2 {
					third := b.Status(watcher, "p").Checkpoint + 3
					b.Kill(way)
					checkpoint := b.Status(watcher, "p").Checkpoint
					all, err := b.Store.Arrived(b.Ctx)
					b.Must(err)
					last := all[len(all)-1].Position
					switch {
					case s.effect && last != third, !s.effect && last != third-1:
						t.Errorf("killed at position %d, the last effect was at %d", third, last)
					case s.unsure && checkpoint != third && checkpoint != third-1, !s.unsure && (checkpoint == third) != s.ack, checkpoint < third-1:
						t.Errorf("killed at position %d, acknowledged up to %d", third, checkpoint)
					}
					if last > checkpoint {
						repeats++
					}
				}
				b.RunUntilIdle(b.Runtime(kit.Quick, delivering(b, step{before: lives, after: lives, acknowledged: lives})))
				arrivals := mustHaveArrivedIn(b, positions, repeats)
				// An acknowledgement on its way may also commit after the checkpoint was read.
				if n := len(arrivals) - len(positions); n != repeats && (!s.unsure || n < 0 || n > repeats) {
					t.Errorf("%d arrivals of %d events, %d repeats were forced", len(arrivals), len(positions), repeats)
				}
				if letters := b.Letters("p"); len(letters) != 0 {
					t.Errorf("dead letters %v", letters)
				}
			})
		}
	})
}
