package kit

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/millrace-go/millrace"
)

var seedFlag = flag.Uint64("random-seed", 0, "seed of what happens at random; 0 means a new one")

// Seed returns a seed, and prints how to repeat it.
func Seed(t *testing.T) uint64 {
	seed := *seedFlag
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: repeat with -random-seed", seed)
	return seed
}

// Arrival is an effect that a handler had outside of the database.
type Arrival struct {
	Position int64
	Token    string
}

// Receiver is the receiver of deliveries, outside of the database. It remembers what arrived, in order.
type Receiver struct {
	mu       sync.Mutex
	arrivals []Arrival
}

// Take records an effect, and returns how many effects of this event there were, this one included.
func (r *Receiver) Take(position int64, token string) (times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrivals = append(r.arrivals, Arrival{position, token})
	for _, a := range r.arrivals {
		if a.Position == position {
			times++
		}
	}
	return times
}

// All returns what arrived.
func (r *Receiver) All() []Arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrivals)
}

// check returns what is wrong with what arrived: each of these events at least once and in order, repeats only of the
// event that came last, each with the same token, and no more than repeats of them.
func check(arrivals []Arrival, positions []int64, repeats int) error {
	next, repeated := 0, 0
	tokens := make(map[string]int64)
	for i, a := range arrivals {
		switch {
		case next < len(positions) && a.Position == positions[next]:
			if at, used := tokens[a.Token]; used {
				return fmt.Errorf("position %d came with the token of %d", a.Position, at)
			}
			tokens[a.Token] = a.Position
			next++
		case next > 0 && a.Position == positions[next-1]:
			if tokens[a.Token] != a.Position {
				return fmt.Errorf("position %d was repeated with another token: %q", a.Position, a.Token)
			}
			repeated++
		default:
			return fmt.Errorf("arrival %d is of position %d, after %d of %v", i, a.Position, next, positions)
		}
	}
	if next != len(positions) || repeated > repeats {
		return fmt.Errorf("%d of %d events arrived, with %d repeats, of which %d were forced", next, len(positions),
			repeated, repeats)
	}
	return nil
}

// MustHaveArrived checks that these events arrived in order, with at most that many repeats, each of the event in
// progress and with the same token.
func (b *Bundle) MustHaveArrived(arrivals []Arrival, positions []int64, repeats int) {
	b.T.Helper()
	if err := check(arrivals, positions, repeats); err != nil {
		b.T.Errorf("%v; arrived: %v", err, arrivals)
	}
	if err := check(nil, positions, repeats); err == nil {
		b.T.Error("the check does not notice what is missing")
	}
}

// Sends delivers each event to r, unless fail returns an error.
func (r *Receiver) Sends(fail func(ctx context.Context, e millrace.Delivered) error) func(ctx context.Context,
	e millrace.Delivered) error {
	return func(ctx context.Context, e millrace.Delivered) error {
		if err := fail(ctx, e); err != nil {
			return err
		}
		r.Take(e.Position, e.Token)
		return nil
	}
}
