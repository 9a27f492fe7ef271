package tests

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// booking is a projection of the states of rooms: "booked" is 1, "cancelled" is 2. Its handler cannot handle Booked
// until it is mended.
type booking struct {
	*kit.Bundle
	mended atomic.Bool
	p      millrace.Projection
}

func newBooking(b *kit.Bundle) *booking {
	k := &booking{Bundle: b}
	b.Must(b.Store.InTx(b.Ctx, kit.Exec("create table rooms (room varchar(40) primary key, state bigint not null)")))
	k.p = millrace.Projection{Name: "rooms", Retry: kit.Soon(0),
		Handler: b.Store.Each(func(ctx context.Context, tx kit.Tx, e event.Envelope) error {
			if e.Type == "Cancelled" {
				return tx.Exec(ctx, fmt.Sprintf("update rooms set state = 2 where room = '%s'", e.Stream))
			}
			if !k.mended.Load() {
				return kit.ErrOnPurpose
			}
			return tx.Exec(ctx, fmt.Sprintf("insert into rooms (room, state) values ('%s', 1)", e.Stream))
		})}
	return k
}

// happens appends an event of these types to a room.
func (k *booking) happens(room string, types ...string) (last int64) {
	k.T.Helper()
	for _, of := range types {
		appended, err := k.Store.Append(k.Ctx, room, event.Any, event.Event{Type: of})
		k.Must(err)
		last = appended.Positions[0]
	}
	return last
}

// state returns what the read model says of a room.
func (k *booking) state(room string) int64 {
	k.T.Helper()
	numbers, err := k.Store.Numbers(k.Ctx, fmt.Sprintf("select coalesce(max(state), 0) from rooms where room = '%s'",
		room))
	k.Must(err)
	return numbers[0]
}

// With the defaults, what was parked and is replayed gives the read model that it gives without a failure.
func TestReplayAfterMendingGivesTheRightReadModelByDefault(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		k := newBooking(b)
		last := k.happens("room-1", "Booked", "Cancelled")
		rt := b.Running(millrace.Config{}, k.p)
		b.Reaches(rt, "rooms", last)
		if parked := b.DeadLettersOf("rooms"); len(parked) != 2 || parked[0].BlockedByStream ||
			!parked[1].BlockedByStream {
			t.Errorf("parked %+v, want Booked and Cancelled after it", parked)
		}
		k.mended.Store(true)
		b.Reaches(rt, "rooms", k.happens("room-2", "Booked"))
		result, err := b.Store.DeadLetters(millrace.ProjectionID{Name: "rooms"}).Replay(b.Ctx,
			projection.DeadLetterFilter{All: true}, 10)
		if err != nil || result.Done != 2 || result.Failed != 0 {
			t.Errorf("replayed %+v, %v", result, err)
		}
		if one, two := k.state("room-1"), k.state("room-2"); one != 2 || two != 1 {
			t.Errorf("the rooms are in states %d and %d, want cancelled (2) and booked (1)", one, two)
		}
		b.Reaches(rt, "rooms", k.happens("room-2", "Cancelled"))
		if k.state("room-2") != 2 {
			t.Error("room-2 is not cancelled")
		}
	})
}

// During a rollout, an event is parked by the program of the owner: alone by an earlier one, whose zero value was
// ActionPark. A stream that either has parked stays parked under both, and events that were parked alone hold nothing
// back.
func TestProgramsOfBothDefaultsWorkOnOneStore(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		earlier, later := s.P, s.P
		earlier.OnFailure, later.OnFailure = projection.ActionPark, 0
		run := func(p millrace.Projection, streams ...string) {
			t.Helper()
			s.More(streams...)
			rt := s.Another(millrace.Config{}, p)
			stop := s.Start(rt)
			s.CatchUp(rt)
			stop()
		}
		alone := s.At["a"][2]
		s.PoisonAt(alone)
		run(earlier, "a")
		s.MustHaveParked(alone)
		s.Poison.Clear()
		s.More("b")
		behind := len(s.At["b"]) - 1
		s.PoisonAt(s.At["b"][behind])
		run(later, "a", "b", "c")
		s.MustHaveParked(slices.Concat([]int64{alone}, s.At["b"][behind:])...)
		run(earlier, "a", "b", "c")
		s.MustHaveParked(slices.Concat([]int64{alone}, s.At["b"][behind:])...)
		s.Mended.Store(true)
		rt := s.Running(millrace.Config{}, later)
		s.More("b", "c")
		if r := <-s.Replaying("p"); r.Failed != 0 {
			t.Errorf("replayed %+v", r)
		}
		s.CatchUp(rt)
		<-s.Replaying("p") // an event of the stream may have been parked after the command
		s.CatchUp(rt)
		if parked := s.Parked(); len(parked) > 0 {
			t.Errorf("parked: %v", parked)
		}
		want := s.At["b"]
		got := slices.DeleteFunc(s.Positions("p"), func(p int64) bool { return !slices.Contains(want, p) })
		if !slices.Equal(got, want) {
			t.Errorf("of the stream that was parked %v were applied, want %v", got, want)
		}
	})
}

// A rejected event parks its stream by default. The delivery continues with other streams, and ends if it has a later
// event of that stream.
func TestRejectionParksTheStreamByDefault(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		var r kit.Receiver
		var over atomic.Int64
		s.P.OnFailure, s.P.MaxEvents = 0, 100
		s.P.Handler = millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
			for _, e := range d.Events() {
				if _, bad := s.Poison.Load(e.Position); bad && !s.Mended.Load() {
					if err := d.Reject(ctx, e.Position, kit.ErrOnPurpose); err != nil {
						over.Add(1)
						return err
					}
					continue
				}
				r.Take(e.Position, d.Token(e))
				if err := d.Ack(ctx, e.Position); err != nil {
					return err
				}
			}
			return nil
		})
		last := s.At["b"][9]
		s.PoisonAt(s.At["a"][4], last)
		rt := s.Running(millrace.Config{}, s.P)
		s.CatchUp(rt)
		s.CatchUp(rt)
		want := slices.Concat(s.At["a"][:4], s.At["b"][:9], s.At["c"])
		slices.Sort(want)
		s.MustHaveArrived(r.All(), want, 0)
		if over.Load() != 1 {
			t.Errorf("%d deliveries ended at a rejection, want that of the stream with later events", over.Load())
		}
		s.More("a", "b", "c")
		s.CatchUp(rt)
		if parked, behind := s.Parked(), slices.Concat(s.At["a"][4:], s.At["b"][9:]); len(parked) != len(behind) {
			t.Errorf("parked: %v, want %v", parked, behind)
		}
		before := len(r.All())
		s.Mended.Store(true)
		s.MustReplay(projection.DeadLetterFilter{All: true}, 100, 9, 0)
		var got []int64
		for _, a := range r.All()[before:] {
			got = append(got, a.Position)
		}
		if replayed := slices.Concat(s.At["a"][4:], s.At["b"][9:]); !slices.Equal(got, replayed) {
			t.Errorf("replayed %v, want %v", got, replayed)
		}
	})
}
