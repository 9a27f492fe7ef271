package postgres_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

var seedFlag = flag.Uint64("delivery-seed", 0, "seed of what fails at random around deliveries; 0 means a new one")

// deliverySeed prints the seed of what follows.
func deliverySeed(t *testing.T) uint64 {
	seed := *seedFlag
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: repeat with -delivery-seed", seed)
	return seed
}

// arrival is an effect that a handler had outside of the database.
type arrival struct {
	position int64
	token    string
}

// receiver is the world outside: it remembers what arrived, in order.
type receiver struct {
	mu       sync.Mutex
	arrivals []arrival
}

// take takes an effect in and returns how many there were of this event, this one included.
func (r *receiver) take(position int64, token string) (times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrivals = append(r.arrivals, arrival{position, token})
	for _, a := range r.arrivals {
		if a.position == position {
			times++
		}
	}
	return times
}

func (r *receiver) all() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrivals)
}

// check tells what is wrong with what arrived: each of these events at least once and in order, repeats only of the event
// that came last, each with the same token, and no more than repeats of them.
func (r *receiver) check(positions []int64, repeats int) error {
	next, repeated := 0, 0
	tokens := make(map[string]int64)
	for i, a := range r.all() {
		switch {
		case next < len(positions) && a.position == positions[next]:
			if at, used := tokens[a.token]; used {
				return fmt.Errorf("position %d came with the token of %d", a.position, at)
			}
			tokens[a.token] = a.position
			next++
		case next > 0 && a.position == positions[next-1]:
			if tokens[a.token] != a.position {
				return fmt.Errorf("position %d was repeated with another token: %q", a.position, a.token)
			}
			repeated++
		default:
			return fmt.Errorf("arrival %d is of position %d, after %d of %v", i, a.position, next, positions)
		}
	}
	if next != len(positions) || repeated > repeats {
		return fmt.Errorf("%d of %d events arrived, with %d repeats, of which %d were forced", next, len(positions), repeated, repeats)
	}
	return nil
}

func (b *bundle) mustHaveArrived(r *receiver, positions []int64, repeats int) {
	b.t.Helper()
	if err := r.check(positions, repeats); err != nil {
		b.t.Errorf("%v; arrived: %v", err, r.all())
	}
	if err := (&receiver{}).check(positions, repeats); err == nil {
		b.t.Error("the check does not notice what is missing")
	}
}

// sends delivers each event to r, after fail has let it.
func (r *receiver) sends(fail func(ctx context.Context, e millrace.Delivered) error) deliveredFunc {
	return func(ctx context.Context, e millrace.Delivered) error {
		if err := fail(ctx, e); err != nil {
			return err
		}
		r.take(e.Position, e.Token)
		return nil
	}
}

func freely(context.Context, millrace.Delivered) error { return nil }

// Handlers that fail before the effect repeat nothing; those that fail after it repeat that one.
func TestLeasedDeliveryComesInOrderWhateverFails(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	positions := append(b.append("a", 60).Positions, b.append("b", 60).Positions...)
	seed := deliverySeed(t)
	var single, batches receiver
	before, after := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	repeats := 0
	rt := b.runtime(millrace.Config{},
		millrace.Projection{Name: "single", MaxEvents: 16, Retry: soon(100), Handler: millrace.DeliverEach(single.sends(func(context.Context, millrace.Delivered) error {
			switch before.IntN(6) {
			case 0:
				return errOnPurpose
			case 1:
				panic(errOnPurpose)
			}
			return nil
		}))},
		millrace.Projection{Name: "batches", MaxEvents: 16, Retry: soon(100), Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
			for i, e := range d.Events() {
				times := batches.take(e.Position, d.Token(e))
				if after.IntN(6) == 0 {
					repeats++
					return errOnPurpose
				}
				if times > 15 {
					return projection.Stop(errors.New("it comes again and again"))
				}
				if err := d.Ack(ctx, e.Position); err != nil {
					return err
				}
				if i == 9 {
					return nil // the rest comes at once
				}
			}
			return nil
		})})
	if _, err := rt.RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.mustHaveArrived(&single, positions, 0)
	b.mustHaveArrived(&batches, positions, repeats)
	for _, name := range []string{"single", "batches"} {
		if s := b.status(rt, name); s.Parked != 0 || s.Checkpoint != positions[len(positions)-1] || s.Attempts != 0 && s.FailingPosition == 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A runtime that ends, and a projection that is paused, wait for the event that is under way and for no other.
func TestRestComesBetweenTwoEventsOfADelivery(t *testing.T) {
	t.Parallel()
	for name, rest := range map[string]func(b *bundle, rt *millrace.Runtime, stop func()){
		"stop": func(_ *bundle, _ *millrace.Runtime, stop func()) { stop() },
		"pause": func(b *bundle, rt *millrace.Runtime, stop func()) {
			if err := rt.Pause(b.ctx, millrace.ProjectionID{Name: "p"}); err != nil {
				b.t.Fatal(err)
			}
			b.eventually("it is paused and at rest", func() bool { s := b.status(rt, "p"); return s.State == millrace.StatePaused && s.Position == 3 })
			stop()
			if err := rt.Resume(b.ctx, millrace.ProjectionID{Name: "p"}); err != nil {
				b.t.Fatal(err)
			}
		},
	} {
		b := setup(t, pgstore.Options{})
		positions := b.append("a", 10).Positions
		var r receiver
		resting := make(chan struct{})
		p := millrace.Projection{Name: "p", Retry: soon(-1), Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
			deliver := r.sends(func(ctx context.Context, e millrace.Delivered) error {
				if e.Position != 3 {
					return nil
				}
				close(resting)
				for d.Remaining() > 0 {
					pass(ctx, time.Millisecond)
				}
				if ctx.Err() != nil {
					t.Errorf("%s: the event under way is cut short", name)
				}
				return nil
			})
			for _, e := range d.Events() {
				if d.Remaining() == 0 {
					break
				}
				if err := deliver(ctx, millrace.Delivered{Envelope: e, Token: d.Token(e)}); err != nil {
					return err
				}
				if err := d.Ack(ctx, e.Position); err != nil {
					return err
				}
			}
			return nil
		})}
		first := b.runtime(millrace.Config{}, p)
		stop := b.start(first)
		<-resting
		rest(b, first, stop)
		if s := b.status(first, "p"); s.Checkpoint != 3 || s.Owner != "" || s.Attempts != 0 {
			t.Errorf("%s: at rest: %+v", name, s)
		}
		p.Handler = millrace.DeliverEach(r.sends(freely))
		if _, err := b.another(millrace.Config{}, p).RunUntilIdle(b.ctx); err != nil {
			t.Fatal(err)
		}
		b.mustHaveArrived(&r, positions, 0)
	}
}
