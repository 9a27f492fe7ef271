package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// What fails in the middle of a batch is counted at once, without being narrowed down to, and what was done before stays.
func TestFailureOfALeasedEventIsCountedWithoutNarrowing(t *testing.T) {
	t.Parallel()
	for _, at := range []int{0, 17, 39} {
		t.Run(fmt.Sprint("event ", at), func(t *testing.T) {
			t.Parallel()
			mustCountAtOnce(t, at)
		})
	}
}

func mustCountAtOnce(t *testing.T, at int) {
	b := setup(t, pgstore.Options{})
	positions := b.append("a", 40).Positions
	poison := positions[at]
	var r receiver
	var calls, attempts atomic.Int64
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Retry: soon(2),
		FailureHandler: func(_ context.Context, f projection.Failure) projection.Action {
			if attempts.Add(1) != int64(f.Attempt) || f.Event.Position != poison || !errors.Is(f.Err, errOnPurpose) {
				t.Errorf("FailureHandler is told %+v", f)
			}
			if f.Attempt < 3 {
				return projection.ActionRetry
			}
			return projection.ActionPark
		},
		Handler: millrace.DeliverEach(r.sends(func(_ context.Context, e millrace.Delivered) error {
			if e.Position == poison {
				calls.Add(1)
				return errOnPurpose
			}
			return nil
		}))})
	if _, err := rt.RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.mustHaveArrived(&r, slices.DeleteFunc(slices.Clone(positions), func(p int64) bool { return p == poison }), 0)
	if letters := b.letters("p"); calls.Load() != 3 || len(letters) != 1 || letters[0].Position != poison || letters[0].Attempts != 3 {
		t.Errorf("%d calls for the poison event, want 3; dead letters %+v", calls.Load(), letters)
	}
}

func TestRejectedEventsAreParkedAndReplayedWithTheSameToken(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	id := millrace.ProjectionID{Name: "p"}
	positions := b.append("a", 30).Positions
	var r receiver
	var mended atomic.Bool
	refused := make(map[int64]string)
	var mu sync.Mutex
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", MaxEvents: 8, Retry: soon(-1), Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
		for _, e := range d.Events() {
			if e.Position%7 == 0 && !mended.Load() {
				mu.Lock()
				refused[e.Position] = d.Token(e)
				mu.Unlock()
				if err := d.Reject(ctx, e.Position, fmt.Errorf("%w: nobody wants it", errOnPurpose)); err != nil {
					return err
				}
				continue
			}
			r.take(e.Position, d.Token(e))
			if err := d.Ack(ctx, e.Position); err != nil {
				return err
			}
		}
		return nil
	})})
	b.start(rt)
	if err := rt.WaitFor(b.ctx, id, positions[29]); err != nil {
		t.Fatal(err)
	}
	b.mustHaveArrived(&r, slices.DeleteFunc(slices.Clone(positions), func(p int64) bool { return p%7 == 0 }), 0)
	letters := b.letters("p")
	if len(letters) != 4 || letters[0].Position != 7 || letters[0].Attempts != 1 || !strings.Contains(letters[0].Error, "nobody wants it") {
		t.Errorf("dead letters %+v", letters)
	}
	if s := b.status(rt, "p"); s.Parked != 4 {
		t.Errorf("%+v", s)
	}
	// A replay that is rejected has failed, and one that succeeds has the same token.
	if o, err := b.store.DeadLetters(id).Replay(b.ctx, projection.DeadLetterFilter{All: true}, 2); err != nil || o.Failed != 2 || o.Done != 0 {
		t.Errorf("replayed %+v, %v", o, err)
	}
	mended.Store(true)
	before := len(r.all())
	if o, err := b.store.DeadLetters(id).Replay(b.ctx, projection.DeadLetterFilter{All: true}, 100); err != nil || o.Done != 4 {
		t.Errorf("replayed %+v, %v", o, err)
	}
	for _, a := range r.all()[before:] {
		if a.token == "" || refused[a.position] != a.token {
			t.Errorf("position %d was rejected with token %q and replayed with %q", a.position, refused[a.position], a.token)
		}
	}
	if s := b.status(rt, "p"); len(r.all()) != 30 || s.Parked != 0 || s.Checkpoint != positions[29] {
		t.Errorf("%d arrivals, %+v", len(r.all()), s)
	}
}

func TestRejectingNearlyEverythingStopsTheProjection(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]millrace.Projection{
		"20 of the last 20 events failed":                     {},
		"3 events are parked, and no more may be (MaxParked)": {MaxParked: 3},
	} {
		b := setup(t, pgstore.Options{})
		b.append("a", 60)
		p.Name = "p"
		p.Handler = millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
			for _, e := range d.Events() {
				if err := d.Reject(ctx, e.Position, errOnPurpose); err != nil {
					return err
				}
			}
			return nil
		})
		rt := b.runtime(millrace.Config{}, p)
		_, err := rt.RunUntilIdle(b.ctx)
		if !errors.Is(err, projection.ErrFailed) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if s := b.status(rt, "p"); s.Parked != s.Checkpoint || s.Parked != int64(len(b.letters("p"))) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// The whole story of parked streams is that of transactional handlers; a delivery parks on its way.
func TestLeasedDeliveryParksStreamsInOrder(t *testing.T) {
	t.Parallel()
	s := newParking(t)
	var r receiver
	s.p.Handler = millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
		if _, bad := s.poison.Load(e.Position); bad && !s.mended.Load() {
			return errOnPurpose
		}
		r.take(e.Position, e.Token)
		return nil
	})
	s.poisonAt(s.at["a"][3], s.at["b"][0])
	rt := s.runtime(millrace.Config{}, s.p)
	s.start(rt)
	s.more("a", "b", "c", "b", "c")
	s.waitFor(rt)
	parked := slices.Concat(s.at["a"][3:], s.at["b"])
	slices.Sort(parked)
	if got := s.parked(); !slices.Equal(got, parked) {
		t.Errorf("parked: %v, want %v", got, parked)
	}
	live := slices.Concat(s.at["a"][:3], s.at["c"])
	slices.Sort(live)
	s.mustHaveArrived(&r, live, 0)
	s.mended.Store(true)
	if o := s.replay(projection.DeadLetterFilter{All: true}, 100); o.Done != int64(len(parked)) {
		t.Errorf("replayed %+v", o)
	}
	last := s.more("a", "b")
	s.waitFor(rt)
	var replayed []int64
	for _, a := range r.all()[len(live):] {
		replayed = append(replayed, a.position)
	}
	if want := slices.Concat(s.at["b"][:len(s.at["b"])-1], s.at["a"][3:len(s.at["a"])-1], []int64{last - 1, last}); !slices.Equal(replayed, want) {
		t.Errorf("replayed %v, want %v", replayed, want)
	}
}

// Receivers that hang take no turn of a transaction, and no more than the deliveries' own.
func TestDeliveriesThatHangLeaveTransactionsTheirTurn(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	positions := b.append("a", 3).Positions
	entered, leave := make(chan struct{}, 100), make(chan struct{})
	hangs := func(context.Context, millrace.Delivered) error {
		entered <- struct{}{}
		<-leave
		return nil
	}
	rt := b.runtime(millrace.Config{MaxBatches: 2, MaxDeliveries: 2}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))},
		millrace.Projection{Name: "q", Handler: millrace.DeliverEach(hangs)}, millrace.Projection{Name: "r", Handler: millrace.DeliverEach(hangs)}, millrace.Projection{Name: "s", Handler: millrace.DeliverEach(hangs)})
	b.start(rt)
	<-entered
	<-entered
	b.reaches(rt, millrace.ProjectionID{Name: "p"}, positions[2])
	b.reaches(rt, millrace.ProjectionID{Name: "p"}, b.append("a", 1).Positions[0])
	select {
	case <-entered:
		t.Error("there are more deliveries at once than may be")
	default:
	}
	close(leave)
	for _, name := range []string{"q", "r", "s"} {
		b.reaches(rt, millrace.ProjectionID{Name: name}, positions[2])
	}
}
