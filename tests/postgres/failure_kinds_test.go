package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// course is what a policy makes of one event that fails at first: the events that are parked are the poison one, and with
// whole those behind it in its stream.
type course struct {
	shape                      millrace.Projection
	parks, whole, skips, stops bool
	// calls are how often the event is tried alone until then.
	calls int64
}

// courses are all policies. Each event is tried twice, but for those that say otherwise.
func courses() map[string]course {
	answer := func(a projection.Action) func(context.Context, projection.Failure) projection.Action {
		return func(_ context.Context, f projection.Failure) projection.Action {
			if f.Attempt < 3 {
				return projection.ActionRetry
			}
			return a
		}
	}
	once := soon(1)
	return map[string]course{
		"park":                        {shape: millrace.Projection{Retry: once}, parks: true, calls: 2},
		"park stream":                 {shape: millrace.Projection{Retry: once, OnFailure: projection.ActionParkStream}, parks: true, whole: true, calls: 2},
		"skip":                        {shape: millrace.Projection{Retry: once, OnFailure: projection.ActionSkip}, skips: true, calls: 2},
		"stop":                        {shape: millrace.Projection{Retry: once, OnFailure: projection.ActionStop}, stops: true, calls: 2},
		"retry for ever":              {shape: millrace.Projection{Retry: once, OnFailure: projection.ActionRetry}, calls: 4},
		"FailureHandler, park stream": {shape: millrace.Projection{Retry: once, OnFailure: projection.ActionStop, FailureHandler: answer(projection.ActionParkStream)}, parks: true, whole: true, calls: 3},
		"FailureHandler, skip":        {shape: millrace.Projection{Retry: once, OnFailure: projection.ActionStop, FailureHandler: answer(projection.ActionSkip)}, skips: true, calls: 3},
	}
}

// fates are the courses of one poison event, and what must have become of it.
type fates struct {
	*bundle
	poison, last int64
	behind       []int64 // of its stream
}

func newFates(t *testing.T) *fates {
	f := &fates{bundle: setup(t, pgstore.Options{})}
	f.faultTables()
	for i := range 10 {
		a := f.append("a", 1).Positions[0]
		f.last = f.append("b", 1).Positions[0]
		if i == 4 {
			f.poison = a
		} else if i > 4 {
			f.behind = append(f.behind, a)
		}
	}
	return f
}

// mustHaveGone checks what became of the event, which failed that often at least.
func (f *fates) mustHaveGone(rt *millrace.Runtime, name string, c course, failures int) {
	f.t.Helper()
	err := rt.WaitFor(f.ctx, millrace.ProjectionID{Name: name}, f.last)
	s, letters := f.status(rt, name), f.letters(name)
	var parked []int64
	for _, l := range letters {
		parked = append(parked, l.Position)
		if l.BlockedByStream != (l.Position != f.poison) || (l.Attempts >= failures) == l.BlockedByStream {
			f.t.Errorf("%s: parked: %+v", name, l)
		}
	}
	var want []int64
	if c.parks {
		want = append(want, f.poison)
	}
	if c.whole {
		want = append(want, f.behind...)
	}
	skipped := int64(0)
	if c.skips {
		skipped = 1
	}
	if !slices.Equal(parked, want) || s.Parked != int64(len(want)) || s.Skipped != skipped || errors.Is(err, projection.ErrFailed) != c.stops || (err != nil) != c.stops {
		f.t.Errorf("%s: parked %v, want %v; waiting for it: %v; %+v", name, parked, want, err, s)
	}
	switch {
	case c.stops:
		if s.Checkpoint != f.poison-1 || len(f.positions(name)) != int(f.poison)-1 {
			f.t.Errorf("%s: applied %v", name, f.positions(name))
		}
	case c.skips:
		f.verify(name, f.poison)
	default:
		f.verify(name, want...)
	}
}

// Every policy does the same whatever the failure is.
func TestEveryPolicyMeetsEveryFailureAlike(t *testing.T) {
	t.Parallel()
	f := newFates(t)
	f.exec("create table model (n int)")
	f.exec("insert into model values (0)")
	release := f.lock("update model set n = -1")
	var projections []millrace.Projection
	calls, waits := make(map[string]*atomic.Int64), make(map[string]*atomic.Int64)
	for policy, c := range courses() {
		for kind, fault := range faults {
			p, n := c.shape, new(atomic.Int64)
			p.Name, p.MaxEvents, p.Timeout = policy+": "+kind, 4, 30*time.Second
			if strings.HasPrefix(kind, "deadline") {
				p.Timeout = 400 * time.Millisecond
			}
			p.Handler = pgstore.Batch(failsAt(p.Name, only(f.poison), func(ctx context.Context, tx pgx.Tx, batch int, _ int64) error {
				if batch > 1 {
					return errOnPurpose // so that nothing but the event alone takes its time
				}
				if n.Add(1) >= c.calls && !c.parks && !c.skips && !c.stops {
					return nil // only what is tried for ever comes so far
				}
				return fault.fail(ctx, tx)
			}))
			calls[p.Name] = n
			projections = append(projections, p)
		}
		p, n := c.shape, new(atomic.Int64)
		p.Name, p.Timeout = policy+": a stranger's lock", 400*time.Millisecond
		p.Handler = pgstore.Batch(failsAt(p.Name, only(f.poison), func(ctx context.Context, tx pgx.Tx, _ int, _ int64) error {
			n.Add(1)
			return execute("update model set n = n + 1")(ctx, tx)
		}))
		waits[p.Name] = n
		projections = append(projections, p)
	}
	dsn, err := pgtest.WithSetting(f.dsn, "pool_max_conns", "16") // most of it is waiting
	if err != nil {
		t.Fatal(err)
	}
	store, err := pgstore.Open(f.ctx, dsn, pgstore.Options{SessionDSN: f.dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	rt := f.runtime(millrace.Config{Store: store}, projections...)
	f.start(rt)
	for policy, c := range courses() {
		for kind := range faults {
			name := policy + ": " + kind
			f.mustHaveGone(rt, name, c, int(c.calls))
			if n := calls[name].Load(); n != c.calls {
				t.Errorf("%s: %d calls for the event alone, want %d", name, n, c.calls)
			}
		}
	}
	for name, n := range waits {
		f.eventually(name+" was waited for", func() bool { return n.Load() >= 4 })
	}
	for name := range waits {
		if s := f.status(rt, name); s.Attempts+int(s.Skipped+s.Parked) != 0 || s.State == millrace.StateFailed {
			t.Errorf("%s: counted: %+v", name, s)
		}
	}
	release()
	for name := range waits {
		f.mustHaveGone(rt, name, course{}, 0)
	}
}

// losing is a connection whose commits go through and whose answers to some of them do not.
type losing struct {
	net.Conn
	lose func() bool
}

func (c *losing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && bytes.Contains(p[:n], []byte("COMMIT\x00")) && c.lose() {
		_ = c.Close()
		return 0, syscall.ECONNRESET
	}
	return n, err
}

// forgetful is a store that does not learn of some of its commits: of those for which lose says so.
func (b *bundle) forgetful(lose func() bool) *pgstore.Store {
	b.t.Helper()
	config, err := pgxpool.ParseConfig(b.dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &losing{conn, lose}, nil
	}
	pool, err := pgxpool.NewWithConfig(b.ctx, config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	store, err := pgstore.OpenPool(b.ctx, pool, pgstore.Options{SessionDSN: b.dsn})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(store.Close)
	return store
}

// Whatever commits and is not known to: nothing is lost, doubled or held against an event, whatever the policy.
func TestLostAnswersToCommitsChangeNothingWhateverThePolicy(t *testing.T) {
	t.Parallel()
	f := newFates(t)
	var commits, lost atomic.Int64
	var off atomic.Bool
	store := f.forgetful(func() bool {
		if off.Load() || commits.Add(1)%3 != 0 {
			return false
		}
		lost.Add(1)
		return true
	})
	projections := make(map[string]course)
	var all []millrace.Projection
	for policy, c := range courses() {
		for _, most := range []int{1, 4} {
			p := c.shape
			p.Name, p.MaxEvents = fmt.Sprint(policy, ", at most ", most), most
			projections[p.Name] = c
			fails := c.parks || c.skips || c.stops
			p.Handler = pgstore.Batch(failsAt(p.Name, only(f.poison), func(context.Context, pgx.Tx, int, int64) error {
				if !fails {
					return nil
				}
				return errOnPurpose
			}))
			all = append(all, p)
		}
	}
	rt := f.runtime(millrace.Config{Store: store}, all...)
	f.start(rt)
	for name, c := range projections {
		f.mustHaveGone(rt, name, c, int(c.calls))
	}
	if lost.Load() < 20 {
		t.Errorf("%d answers were lost: that tries nothing", lost.Load())
	}
	off.Store(true)
}

// A replay moves no checkpoint that would tell that it was made.
func TestReplayWhoseCommitIsNotAnsweredAppliesOnce(t *testing.T) {
	t.Parallel()
	s := newParking(t)
	s.poisonAt(s.at["a"][2], s.at["b"][5])
	var armed atomic.Bool
	var mu sync.Mutex
	var lost, commits int
	store := s.forgetful(func() bool {
		mu.Lock()
		defer mu.Unlock()
		if !armed.Load() {
			return false
		}
		// Of five commits one: the count of a replay, the replay or a probe, in turn.
		if commits++; commits%5 == 3 {
			lost++
			return true
		}
		return false
	})
	rt := s.runtime(millrace.Config{Store: store}, s.p)
	s.start(rt)
	s.waitFor(rt)
	s.mended.Store(true)
	armed.Store(true)
	if o := s.replay(projection.DeadLetterFilter{All: true}, 100); o != (projection.CommandResult{Done: 13}) {
		t.Errorf("replayed %+v", o)
	}
	armed.Store(false)
	s.more("a", "b", "c")
	s.waitFor(rt)
	s.mustHaveParked()
	if lost < 4 {
		t.Errorf("%d answers were lost: that tries nothing", lost)
	}
}

// What is nobody's fault is not held against an event that is replayed either, and live events go on meanwhile.
func TestStrangersLockHoldsNothingAgainstAReplay(t *testing.T) {
	t.Parallel()
	s := newParking(t)
	s.exec("create table model (n int)")
	s.exec("insert into model values (0)")
	poison := s.at["a"][2]
	s.poisonAt(poison)
	s.p.Timeout = 600 * time.Millisecond
	handle := s.handle
	var waits atomic.Int64
	s.p.Handler = pgstore.Batch(func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		if err := handle(ctx, tx, events); err != nil || events[0].Position != poison || len(events) > 1 {
			return err
		}
		waits.Add(1)
		return execute("update model set n = n + 1")(ctx, tx)
	})
	rt := s.runtime(millrace.Config{}, s.p)
	s.start(rt)
	s.waitFor(rt)
	release := s.lock("update model set n = -1")
	s.mended.Store(true)
	replayed := make(chan projection.CommandResult, 1)
	go func() {
		o, err := s.letters.Replay(s.ctx, projection.DeadLetterFilter{All: true}, 100)
		if err != nil {
			t.Error(err)
		}
		replayed <- o
	}()
	s.eventually("the stranger was waited for", func() bool { return waits.Load() >= 3 })
	s.more("b", "c")
	s.waitFor(rt)
	if letters := s.bundle.letters("p"); letters[0].Attempts != 2 || letters[0].Replays != 0 {
		t.Errorf("counted: %+v", letters[0])
	}
	release()
	if o := <-replayed; o.Done != 8 || o.Failed != 0 {
		t.Errorf("replayed %+v", o)
	}
	s.mustHaveParked()
}

// An event that waits for its next attempt, for an hour, does not keep those that are parked from being replayed.
func TestReplaysGoOnWhileAnEventWaitsForItsNextAttempt(t *testing.T) {
	t.Parallel()
	s := newParking(t)
	parked, waits := s.at["a"][2], s.at["b"][5]
	s.poisonAt(parked, waits)
	s.p.Retry = projection.RetryPolicy{Base: time.Hour, Cap: time.Hour}
	s.p.FailureHandler = func(_ context.Context, f projection.Failure) projection.Action {
		if f.Event.Position == parked {
			return projection.ActionPark
		}
		return projection.ActionRetry
	}
	rt := s.runtime(millrace.Config{}, s.p)
	s.start(rt)
	s.eventually("it waits", func() bool {
		p := s.status(rt, "p")
		return p.State == millrace.StateWaiting && p.FailingPosition == waits
	})
	s.poison.Delete(parked)
	if o := s.replay(projection.DeadLetterFilter{All: true}, 10); o != (projection.CommandResult{Done: 1}) {
		t.Errorf("replayed %+v", o)
	}
	if p := s.status(rt, "p"); p.Attempts != 1 || p.Checkpoint >= waits {
		t.Errorf("status: %+v", p)
	}
}
