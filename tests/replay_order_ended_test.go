package tests_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// Purge keeps what was discarded of a stream that is parked: without it the event would seem to be handled, and the
// replay of those before it be out of order.
func TestPurgeKeepsWhatWasDiscardedOfAParkedStream(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		d := newDrawer(kind.New(t), 3)
		a := d.at["a"]
		d.park(a[0], true)
		d.must(d.run(d.write, d.batch(d.at["c"][2], a[1], a[2])))
		d.discard(a[1])
		purge := func(want int64) {
			t.Helper()
			if n, err := d.letters().Purge(d.Ctx, projection.DeadLetterFilter{All: true}, 0, 100); n != want ||
				err != nil {
				t.Errorf("%d dead letters are purged, %v; want %d", n, err, want)
			}
		}
		purge(0)
		applied, result, err := d.ordered(everything, engine.ReplayRequest{})
		if want := []int64{a[0], a[2]}; err != nil || !slices.Equal(applied, want) {
			t.Errorf("applied %v, %+v, %v; want %v", applied, result, err, want)
		}
		purge(3)
	})
}

// A reset passes discarded events again. They count as handled then.
func TestEventsThatAResetPassesAgainCountForTheOrder(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		d := newDrawer(kind.New(t), 3)
		a := d.at["a"]
		d.park(a[0], false)
		d.must(d.run(d.write, d.batch(a[1]-1)))
		d.park(a[1], false)
		d.discard(a[1])
		_, err := d.Plane().Reset(d.Ctx, engine.Reset{ID: d.Lease.ID, Position: a[0]})
		d.Must(err)
		_, err = d.Port.Claim(d.Ctx, d.Node, []int32{d.Lease.Row}, false)
		d.must(err)
		d.must(d.run(d.write, d.batch(a[2]-1))) // with a[1]
		d.park(a[2], true)
		if _, result, err := d.ordered(everything, engine.ReplayRequest{}); !errors.Is(err, projection.ErrOutOfOrder) {
			t.Errorf("%+v, %v; applied %v", result, err, d.applied())
		}
	})
}

// Refused dead letters do not count toward the limit of a command, which then would never come to those after them.
func TestRefusedDeadLettersTakeNothingOfTheLimit(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		d := newDrawer(kind.New(t), 3)
		d.park(d.at["a"][0], false)
		d.park(d.at["b"][0], false)
		last := d.at["c"][2]
		d.must(d.run(d.write, d.batch(last-1)))
		d.park(last, false)
		command := d.give(engine.ReplayCommand, everything, 1)
		applied, result, err := d.carryOut(engine.ReplayRequest{Command: command})
		if !slices.Equal(applied, []int64{last}) || result.Done != 1 || result.Refused == nil ||
			result.Refused.Events != 2 || err != nil {
			t.Errorf("applied %v, %+v, %v", applied, result, err)
		}
	})
}

// A new owner knows how many events are parked, but not how many of them failed. Its first delivery keeps to the limit.
func TestFirstDeliveryOfAnOwnerKeepsToMaxParked(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.New(t)
		p := millrace.Projection{Name: "p", AnyOrder: true, MaxParked: 3, MaxFailureShare: projection.NoLimit,
			Retry: kit.Soon(0), MaxEvents: 30,
			Handler: millrace.Deliver(rejectAll)}
		b.Append("a", 2)
		b.Idle(p)
		b.Append("a", 60)
		rt := b.Another(millrace.Config{}, p)
		_, err := rt.RunUntilIdle(b.Ctx)
		if s := b.Status(rt, "p"); s.Parked != 3 || !errors.Is(err, projection.ErrFailed) {
			t.Errorf("%d events are parked, %v", s.Parked, err)
		}
	})
}
