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
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// parking is a projection "p" that parks streams: its handler fails at the poison events until mended is true. The streams
// a, b and c have ten events each, in turn.
type parking struct {
	*bundle
	id      millrace.ProjectionID
	letters *pgstore.DeadLetters
	poison  sync.Map
	mended  atomic.Bool
	calls   atomic.Int64 // at poison events
	handle  batchFunc    // fails at the poison events
	p       millrace.Projection
	at      map[string][]int64 // the positions of each stream's events
}

func newParking(t *testing.T) *parking {
	return parkingIn(setup(t, pgstore.Options{}))
}

func parkingIn(b *bundle) *parking {
	s := &parking{bundle: b, id: millrace.ProjectionID{Name: "p"}, at: make(map[string][]int64)}
	s.letters = s.store.DeadLetters(s.id)
	for range 10 {
		s.more("a", "b", "c")
	}
	s.handle = failsAt("p", func(position int64) bool { _, bad := s.poison.Load(position); return bad }, func(context.Context, pgx.Tx, int, int64) error {
		if s.mended.Load() {
			return nil
		}
		s.calls.Add(1)
		return errOnPurpose
	})
	s.p = millrace.Projection{Name: "p", MaxEvents: 8, MaxFailureShare: -1, Retry: soon(1), OnFailure: projection.ActionParkStream,
		Handler: pgstore.Batch(s.handle)}
	return s
}

// more appends one event to each of these streams and returns the last position.
func (s *parking) more(streams ...string) (last int64) {
	s.t.Helper()
	for _, stream := range streams {
		last = s.append(stream, 1).Positions[0]
		s.at[stream] = append(s.at[stream], last)
	}
	return last
}

func (s *parking) poisonAt(positions ...int64) {
	for _, p := range positions {
		s.poison.Store(p, true)
	}
}

// waitFor waits until the projection has come to the head.
func (s *parking) waitFor(rt *millrace.Runtime) {
	s.t.Helper()
	if err := rt.WaitFor(s.ctx, s.id, s.head()); err != nil {
		s.t.Fatal(err)
	}
}

// parked are the positions of what is parked, in order.
func (s *parking) parked() (positions []int64) {
	s.t.Helper()
	letters, err := s.letters.List(s.ctx, projection.DeadLetterPage{Limit: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range letters {
		positions = append(positions, l.Position)
	}
	return positions
}

// mustHaveParked checks that these events are parked and all others were applied once, each stream in order.
func (s *parking) mustHaveParked(want ...int64) {
	s.t.Helper()
	slices.Sort(want)
	if got := s.parked(); !slices.Equal(got, want) {
		s.t.Errorf("parked: %v, want %v", got, want)
	}
	s.mustHaveApplied(want...)
}

// mustHaveApplied checks that all events but these were applied once, each stream in order.
func (s *parking) mustHaveApplied(but ...int64) {
	s.t.Helper()
	var counter, counted int64
	err := s.store.Pool().QueryRow(s.ctx, `select p.parked, (select count(*) from millrace.dead_letters d where d.projection_id = p.id and d.state in ('parked', 'replaying'))
		from millrace.projections p where p.name = 'p'`).Scan(&counter, &counted)
	if err != nil || counter != counted {
		s.t.Errorf("the count of parked events is %d, there are %d: %v", counter, counted, err)
	}
	positions := s.positions("p")
	seen := make(map[int64]int)
	for i, p := range positions {
		if _, twice := seen[p]; twice {
			s.t.Errorf("position %d was applied twice", p)
		}
		seen[p] = i
	}
	total := 0
	for stream, at := range s.at {
		last := -1
		for _, p := range at {
			total++
			i, applied := seen[p]
			if applied == slices.Contains(but, p) {
				s.t.Errorf("position %d of stream %s: applied %v", p, stream, applied)
			}
			if applied && i < last {
				s.t.Errorf("position %d of stream %s was applied before an earlier one", p, stream)
			}
			if applied {
				last = i
			}
		}
	}
	if len(positions) != total-len(but) {
		s.t.Errorf("%d events were applied, want %d", len(positions), total-len(but))
	}
}

func (s *parking) replay(filter projection.DeadLetterFilter, limit int) projection.CommandResult {
	s.t.Helper()
	outcome, err := s.letters.Replay(s.ctx, filter, limit)
	if err != nil {
		s.t.Fatal(err)
	}
	outcome.Command = 0
	return outcome
}

func (s *parking) discard(filter projection.DeadLetterFilter, limit int) projection.CommandResult {
	s.t.Helper()
	outcome, err := s.letters.Discard(s.ctx, filter, limit)
	if err != nil {
		s.t.Fatal(err)
	}
	outcome.Command = 0
	return outcome
}

func TestParkedStreamStaysInOrderAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	s := newParking(t)
	s.poisonAt(s.at["a"][3], s.at["b"][0])
	rt := s.runtime(millrace.Config{}, s.p)
	stop := s.start(rt)
	s.waitFor(rt)
	want := slices.Concat(s.at["a"][3:], s.at["b"])
	s.mustHaveParked(want...)
	letters, err := s.letters.List(s.ctx, projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Stream: "a"}})
	if err != nil || len(letters) != 7 {
		t.Fatal(letters, err)
	}
	if head, behind := letters[0], letters[1]; head.BlockedByStream || head.Attempts != 2 || !strings.Contains(head.Error, "on purpose") ||
		!behind.BlockedByStream || behind.Attempts != 0 || behind.Version != 5 || behind.Type != "counted" {
		t.Errorf("the first letter is %+v, the next %+v", head, behind)
	}
	if p := s.status(rt, "p"); p.Parked != 17 || !p.OldestParked.Equal(firstFailed(t, s, s.at["b"][0])) {
		t.Errorf("status: %+v", p)
	}
	// Also across batches, restarts and new owners.
	stop()
	s.more("a", "b", "c", "d")
	rt = s.another(millrace.Config{}, s.p)
	s.start(rt)
	s.more("a", "c")
	s.waitFor(rt)
	s.mustHaveParked(slices.Concat(s.at["a"][3:], s.at["b"])...)

	// Mended, a parked stream is replayed whole, whichever of its letters was meant, and goes on then as any other.
	s.mended.Store(true)
	if o := s.replay(projection.DeadLetterFilter{IDs: []int64{letters[5].ID}}, 100); o != (projection.CommandResult{Done: 9}) {
		t.Errorf("replayed %+v", o)
	}
	s.more("a", "b")
	s.waitFor(rt)
	s.mustHaveParked(s.at["b"]...)
	if o := s.replay(projection.DeadLetterFilter{All: true}, 100); o != (projection.CommandResult{Done: int64(len(s.at["b"]))}) {
		t.Errorf("replayed %+v", o)
	}
	s.more("a", "b", "c")
	s.waitFor(rt)
	s.mustHaveParked()
	if p := s.status(rt, "p"); p.Parked != 0 || !p.OldestParked.IsZero() || p.Checkpoint > s.head() {
		t.Errorf("status: %+v", p)
	}
}

func firstFailed(t *testing.T, s *parking, position int64) time.Time {
	t.Helper()
	letters, err := s.letters.List(s.ctx, projection.DeadLetterPage{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		if l.Position == position {
			return l.FirstFailedAt
		}
	}
	t.Fatalf("position %d is not parked", position)
	return time.Time{}
}

func TestReplayThatFailsStaysParkedWithOneAttemptMore(t *testing.T) {
	t.Parallel()
	s := newParking(t)
	s.poisonAt(s.at["a"][3], s.at["a"][6], s.at["b"][9])
	rt := s.runtime(millrace.Config{}, s.p)
	s.start(rt)
	s.waitFor(rt)
	// All fail, and no stream goes further than its first event.
	if o := s.replay(projection.DeadLetterFilter{All: true}, 100); o != (projection.CommandResult{Failed: 2}) {
		t.Errorf("replayed %+v", o)
	}
	s.mustHaveParked(append(slices.Clone(s.at["a"][3:]), s.at["b"][9])...)
	letters, err := s.letters.List(s.ctx, projection.DeadLetterPage{})
	if err != nil || letters[0].Attempts != 3 || letters[0].Replays != 1 || letters[1].Attempts != 0 || letters[0].State != projection.DeadLetterParked {
		t.Errorf("%+v, %v", letters, err)
	}
	// The first is mended: the stream goes on to the next that fails, which no longer waits for another then.
	s.poison.Delete(s.at["a"][3])
	if o := s.replay(projection.DeadLetterFilter{Stream: "a"}, 100); o != (projection.CommandResult{Done: 3, Failed: 1}) {
		t.Errorf("replayed %+v", o)
	}
	s.mustHaveParked(append(slices.Clone(s.at["a"][6:]), s.at["b"][9])...)
	if letters, err = s.letters.List(s.ctx, projection.DeadLetterPage{}); err != nil || letters[0].BlockedByStream || letters[0].Attempts != 1 || !strings.Contains(letters[0].Error, "on purpose") {
		t.Errorf("%+v, %v", letters, err)
	}
	// A limit ends in the middle of a stream, which stays in order.
	s.mended.Store(true)
	if o := s.replay(projection.DeadLetterFilter{Stream: "a"}, 2); o != (projection.CommandResult{Done: 2}) {
		t.Errorf("replayed %+v", o)
	}
	s.more("a")
	s.waitFor(rt)
	s.mustHaveParked(append(slices.Clone(s.at["a"][8:]), s.at["b"][9])...)
	s.replay(projection.DeadLetterFilter{Error: "on purpose"}, 100)
	s.replay(projection.DeadLetterFilter{Type: "counted"}, 100)
	s.mustHaveParked()
}

func TestTwoReplaysAtOnceApplyOnce(t *testing.T) {
	t.Parallel()
	s := newParking(t)
	s.p.OnFailure = projection.ActionPark
	s.poisonAt(slices.Concat(s.at["a"], s.at["b"])...)
	rt := s.runtime(millrace.Config{}, s.p)
	s.start(rt)
	s.waitFor(rt)
	s.mended.Store(true)
	var done atomic.Int64
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			o, err := s.letters.Replay(s.ctx, projection.DeadLetterFilter{All: true}, 7)
			if err != nil || o.Failed != 0 {
				t.Error(o, err)
			}
			done.Add(o.Done)
		})
	}
	group.Wait()
	if done.Load() != 20 {
		t.Errorf("%d letters were replayed, want 20", done.Load())
	}
	if got := s.positions("p"); len(got) != 30 {
		t.Errorf("%d events were applied, want 30", len(got))
	}
	if n, err := s.letters.Count(s.ctx, projection.DeadLetterFilter{All: true}); n != 0 || err != nil {
		t.Error(n, err)
	}
	if n, err := s.letters.Count(s.ctx, projection.DeadLetterFilter{Stream: "a"}, projection.DeadLetterResolved); n != 10 || err != nil {
		t.Error(n, err)
	}
}

// Whatever is replayed, live events of the stream come behind it, and takeovers in the middle lose and double nothing.
func TestReplayDuringLiveTrafficAndTakeovers(t *testing.T) {
	t.Parallel()
	s := newParking(t)
	s.poisonAt(s.at["a"][0], s.at["b"][2])
	config := millrace.Config{HeartbeatInterval: 100 * time.Millisecond, LeaseDuration: time.Second, FailureDetection: 200 * time.Millisecond, ReconcileInterval: 100 * time.Millisecond}
	rt := s.another(config, s.p)
	stop := s.start(rt)
	for range 60 {
		s.more("a", "b", "c")
	}
	s.waitFor(rt)
	s.mended.Store(true)
	replayed := make(chan error, 1)
	go func() {
		_, err := s.letters.Replay(s.ctx, projection.DeadLetterFilter{All: true}, 1000)
		replayed <- err
	}()
	for range 6 {
		for range 5 {
			s.more("a", "b", "c")
		}
		next := s.another(config, s.p)
		stopNext := s.start(next)
		stop()
		rt, stop = next, stopNext
	}
	if err := <-replayed; err != nil {
		t.Fatal(err)
	}
	s.waitFor(rt)
	// What was appended while the command was under way may have come behind its end.
	s.replay(projection.DeadLetterFilter{All: true}, 1000)
	s.mustHaveParked()
}

func TestDiscardGivesEventsUpAndNothingElse(t *testing.T) {
	t.Parallel()
	s := newParking(t)
	s.poisonAt(s.at["a"][3], s.at["b"][5])
	rt := s.runtime(millrace.Config{}, s.p)
	stop := s.start(rt)
	s.waitFor(rt)
	letters, err := s.letters.List(s.ctx, projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Stream: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	// The first of a stream: the rest stays where it is, and the next is the first now.
	if o := s.discard(projection.DeadLetterFilter{IDs: []int64{letters[0].ID}}, 10); o.Done != 1 {
		t.Errorf("discarded %+v", o)
	}
	s.more("a", "c")
	s.waitFor(rt)
	want := slices.Concat(s.at["a"][4:], s.at["b"][5:])
	slices.Sort(want)
	if got := s.parked(); !slices.Equal(got, want) {
		t.Errorf("parked: %v, want %v", got, want)
	}
	if next, _, err := s.letters.Get(s.ctx, letters[1].ID); err != nil || next.BlockedByStream {
		t.Errorf("the next is %+v, %v", next, err)
	}
	// All of a stream: it goes on.
	if o := s.discard(projection.DeadLetterFilter{Stream: "b"}, 100); o.Done != 5 {
		t.Errorf("discarded %+v", o)
	}
	gone := append(slices.Clone(s.at["b"][5:]), s.at["a"][3])
	s.more("b")
	s.waitFor(rt)
	s.mustHaveApplied(append(gone, s.at["a"][4:]...)...)

	// While it is paused, where a replay waits.
	if err := rt.Pause(s.ctx, s.id); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is paused", func() bool { return s.status(rt, "p").State == millrace.StatePaused })
	s.mended.Store(true)
	short, cancel := context.WithTimeout(s.ctx, 300*time.Millisecond)
	defer cancel()
	if o, err := s.letters.Replay(short, projection.DeadLetterFilter{IDs: []int64{letters[1].ID}}, 1); !errors.Is(err, projection.ErrCommandPending) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a replay while it is paused: %+v, %v", o, err)
	}
	if o := s.discard(projection.DeadLetterFilter{IDs: []int64{letters[2].ID}}, 1); o.Done != 1 {
		t.Errorf("discarded %+v", o)
	}
	if err := rt.Resume(s.ctx, s.id); err != nil {
		t.Fatal(err)
	}
	s.eventually("the replay was made", func() bool { return len(s.parked()) == len(s.at["a"])-6 })
	// Where nobody holds the lease.
	stop()
	if o := s.discard(projection.DeadLetterFilter{Type: "counted"}, 1); o.Done != 1 {
		t.Errorf("discarded %+v", o)
	}
	rt = s.another(millrace.Config{}, s.p)
	s.start(rt)
	s.replay(projection.DeadLetterFilter{All: true}, 100)
	s.waitFor(rt)
	s.mustHaveApplied(append(gone, s.at["a"][5], s.at["a"][6])...)
	if n, err := s.letters.Purge(s.ctx, projection.DeadLetterFilter{Stream: "b"}, 0, 3); n != 3 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	if n, err := s.letters.Purge(s.ctx, projection.DeadLetterFilter{All: true}, time.Hour, 100); n != 0 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	if n, err := s.letters.Purge(s.ctx, projection.DeadLetterFilter{All: true}, 0, 100); err != nil || n == 0 {
		t.Errorf("purged %d, %v", n, err)
	}
	if n, err := s.letters.Count(s.ctx, projection.DeadLetterFilter{All: true}, projection.DeadLetterDiscarded, projection.DeadLetterResolved); n != 0 || err != nil {
		t.Errorf("%d left, %v", n, err)
	}
}

func TestTooMuchThatIsParkedStopsTheProjection(t *testing.T) {
	t.Parallel()
	for _, action := range []projection.Action{projection.ActionParkStream, projection.ActionPark} {
		t.Run(action.String(), func(t *testing.T) {
			t.Parallel()
			s := newParking(t)
			s.p.OnFailure, s.p.MaxParked = action, 4
			s.poisonAt(s.at["a"][2:]...)
			rt := s.runtime(millrace.Config{}, s.p)
			s.start(rt)
			err := rt.WaitFor(s.ctx, s.id, s.head())
			if want := fmt.Sprintf("4 events are parked, and no more may be (MaxParked); event at position %d", s.at["a"][6]); !errors.Is(err, projection.ErrFailed) || !strings.Contains(err.Error(), want) {
				t.Fatalf("%v, want %s", err, want)
			}
			// Its dead letters can be worked off, and resumed it goes on.
			s.mended.Store(true)
			if o := s.replay(projection.DeadLetterFilter{All: true}, 100); o.Done != 4 {
				t.Errorf("replayed %+v", o)
			}
			if p := s.status(rt, "p"); p.State != millrace.StateFailed || p.Parked != 0 {
				t.Errorf("status: %+v", p)
			}
			if err := rt.Resume(s.ctx, s.id); err != nil {
				t.Fatal(err)
			}
			s.waitFor(rt)
			s.mustHaveParked()
		})
	}
}

func TestParkedEventsAreReplayedByThemselves(t *testing.T) {
	t.Parallel()
	s := newParking(t)
	s.p.Replay = projection.ReplayPolicy{Interval: 20 * time.Millisecond, Factor: 1, MaxReplays: 3, Error: "purpose"}
	s.poisonAt(s.at["a"][3], s.at["b"][5])
	rt := s.runtime(millrace.Config{ReconcileInterval: time.Hour}, s.p)
	s.start(rt)
	s.waitFor(rt)
	s.eventually("both were tried as often as they may be", func() bool {
		letters, err := s.letters.List(s.ctx, projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Error: "on purpose"}})
		return err == nil && len(letters) == 2 && letters[0].Replays == 3 && letters[1].Replays == 3
	})
	calls := s.calls.Load()
	s.more("a", "b", "c")
	s.waitFor(rt)
	if n := s.calls.Load(); n != calls {
		t.Errorf("they were tried %d times more than they may be", n-calls)
	}
	// With more replays allowed, they go by themselves once they can.
	s.mended.Store(true)
	s.exec("update millrace.dead_letters set replays = 0")
	s.more("a", "b", "c") // which is parked behind, so that the replayer looks again
	s.eventually("all are replayed", func() bool { return len(s.parked()) == 0 })
	// Nobody waits for the command's end, and nothing else makes anybody look for it.
	s.eventually("no command is left open", func() bool {
		var open int64
		err := s.store.Pool().QueryRow(s.ctx, "select count(*) from millrace.commands where ended_at is null").Scan(&open)
		return err == nil && open == 0
	})
	s.more("a", "b", "c")
	s.waitFor(rt)
	s.mustHaveParked()
}

// However much is to be replayed, live events are applied meanwhile, and what is parked meanwhile is replayed, too.
func TestLiveEventsGoOnWhileMuchIsReplayed(t *testing.T) {
	t.Parallel()
	s := newParking(t)
	s.at["a"] = append(s.at["a"], s.append("a", 500).Positions...)
	s.poisonAt(s.at["a"][0])
	rt := s.runtime(millrace.Config{}, s.p)
	s.start(rt)
	s.waitFor(rt)
	s.mended.Store(true)
	replayed := make(chan projection.CommandResult, 1)
	go func() { replayed <- s.replay(projection.DeadLetterFilter{All: true}, 100_000) }()
	s.eventually("the first are replayed", func() bool { return len(s.parked()) < 500 })
	for range 3 {
		last := s.more("c", "a")
		if err := rt.WaitFor(s.ctx, s.id, last); err != nil {
			t.Fatal(err)
		}
	}
	left := len(s.parked())
	if o := <-replayed; o.Done != 513 || o.Failed != 0 {
		t.Errorf("replayed %+v", o)
	}
	if left == 0 {
		t.Error("live events waited until everything was replayed")
	}
	s.waitFor(rt)
	s.mustHaveParked()
}
