package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

var errOnPurpose = errors.New("on purpose")

// faulty makes, for each kind of fault, a projection of single events and one of batches whose handler fails at the
// poison event until mended is true, and counts how often each was called for that event alone.
func faulty(poison int64, mended *atomic.Bool, shape millrace.Projection) (projections []millrace.Projection, kinds []string) {
	for kind, fault := range faults {
		for _, single := range []bool{false, true} {
			p := shape
			p.Name = fmt.Sprint(kind, ", single: ", single)
			if strings.HasPrefix(kind, "deadline") {
				p.Timeout = 700 * time.Millisecond
			}
			handler := failsAt(p.Name, only(poison), func(ctx context.Context, tx pgx.Tx, _ int, _ int64) error {
				if mended.Load() {
					return nil
				}
				return fault.fail(ctx, tx)
			})
			if single {
				p.Handler = pgstore.Each(each(handler))
			} else {
				p.Handler = pgstore.Batch(handler)
			}
			projections, kinds = append(projections, p), append(kinds, kind)
		}
	}
	return projections, kinds
}

// faultTables are what the faults work on.
func (b *bundle) faultTables() {
	b.exec("create table strict (a int primary key)")
	b.exec("create table late (a int unique deferrable initially deferred)")
}

// positions are what a projection applied, in the order in which it did.
func (b *bundle) positions(name string) (positions []int64) {
	b.t.Helper()
	err := b.store.Pool().QueryRow(b.ctx, "select coalesce(array_agg(position order by at), '{}') from applied where projection = $1", name).Scan(&positions)
	if err != nil {
		b.t.Fatal(err)
	}
	return positions
}

func TestSkippedEventLeavesNothingButACountWhateverItsFault(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.faultTables()
	poison := b.append("a", 30).Positions[12]
	b.append("b", 30)
	var mended atomic.Bool
	projections, _ := faulty(poison, &mended, millrace.Projection{MaxEvents: 16, Retry: soon(1), OnFailure: projection.ActionSkip})
	log, logs := watched()
	rt := b.runtime(millrace.Config{Logger: log}, projections...)
	if _, err := rt.RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	for _, p := range projections {
		b.verify(p.Name, poison)
		if letters := b.letters(p.Name); len(letters) != 0 {
			t.Errorf("%s: dead letters %v", p.Name, letters)
		}
		if s := b.status(rt, p.Name); s.Skipped != 1 || s.FailingPosition != 0 || s.Attempts != 0 {
			t.Errorf("%s: %+v", p.Name, s)
		}
	}
	warnings := logs.FilterMessage("event skipped").All()
	if len(warnings) != len(projections) {
		t.Fatalf("%d warnings for %d skipped events", len(warnings), len(projections))
	}
	if f := warnings[0].ContextMap(); f["position"] != poison || f["type"] != "counted" || f["stream"] != "a" || f["attempt"] != int64(2) {
		t.Errorf("the warning says %v", f)
	}
}

func TestProjectionStopsAtAnEventWhateverItsFaultAndGoesOnWhenResumed(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.faultTables()
	appended := b.append("a", 30)
	poison := appended.Positions[12]
	last := b.append("b", 30).Positions[29]
	var mended atomic.Bool
	projections, kinds := faulty(poison, &mended, millrace.Projection{MaxEvents: 16, Retry: soon(1), OnFailure: projection.ActionStop})
	rt := b.runtime(millrace.Config{}, projections...)
	b.start(rt)
	for i, p := range projections {
		err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: p.Name}, last)
		if !errors.Is(err, projection.ErrFailed) || !strings.Contains(err.Error(), faults[kinds[i]].says) ||
			!strings.Contains(err.Error(), fmt.Sprintf("position %d, attempt 2", poison)) {
			t.Errorf("%s: waiting for it: %v", p.Name, err)
		}
		if got := b.positions(p.Name); len(got) != 12 || got[11] != appended.Positions[11] {
			t.Errorf("%s: applied %v, want the 12 events before position %d", p.Name, got, poison)
		}
		if s := b.status(rt, p.Name); s.State != millrace.StateFailed || s.Parked+s.Skipped != 0 || s.Attempts != 2 {
			t.Errorf("%s: %+v", p.Name, s)
		}
	}
	mended.Store(true)
	for _, p := range projections {
		if err := rt.Resume(b.ctx, millrace.ProjectionID{Name: p.Name}); err != nil {
			t.Fatal(err)
		}
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: p.Name}, last); err != nil {
			t.Errorf("%s: resumed: %v", p.Name, err)
		}
		b.verify(p.Name)
	}
}

// stopped runs a projection that stops at an event until it has, and returns how often its handler was called.
type stopped struct {
	*bundle
	id           millrace.ProjectionID
	poison, last int64
	calls        atomic.Int64
	mended       atomic.Bool
	projection   millrace.Projection
}

func newStopped(t *testing.T) *stopped {
	s := &stopped{bundle: setup(t, pgstore.Options{}), id: millrace.ProjectionID{Name: "p"}}
	s.poison = s.append("a", 10).Positions[4]
	s.last = s.append("b", 10).Positions[9]
	s.projection = millrace.Projection{Name: "p", Retry: soon(2), OnFailure: projection.ActionStop,
		Handler: pgstore.Batch(failsAt("p", only(s.poison), func(context.Context, pgx.Tx, int, int64) error {
			s.calls.Add(1)
			if s.mended.Load() {
				return nil
			}
			return errOnPurpose
		}))}
	return s
}

// mustBeStopped checks that everybody who asks learns that it has stopped, and why.
func (s *stopped) mustBeStopped(rt *millrace.Runtime) {
	s.t.Helper()
	if err := rt.WaitFor(s.ctx, s.id, s.last); !errors.Is(err, projection.ErrFailed) || !strings.Contains(err.Error(), fmt.Sprintf("position %d, attempt 3: on purpose", s.poison)) {
		s.t.Errorf("waiting for it: %v", err)
	}
	if p := s.status(rt, "p"); p.State != millrace.StateFailed || !strings.Contains(p.Reason, "on purpose") || p.Checkpoint != s.poison-1 {
		s.t.Errorf("status says %+v", p)
	}
}

func TestStopSurvivesRestartsAndMovesAndIsKnownEverywhere(t *testing.T) {
	t.Parallel()
	s := newStopped(t)
	remote := s.runtime(millrace.Config{}, several("other")...)
	first := s.another(millrace.Config{}, s.projection)
	stop := s.start(first)
	s.mustBeStopped(first)
	s.mustBeStopped(remote)
	calls := s.calls.Load()

	// Nobody owns it.
	stop()
	s.mustBeStopped(remote)
	_, err := s.runtime(millrace.Config{}, s.projection).RunUntilIdle(s.ctx)
	if !errors.Is(err, projection.ErrFailed) || !strings.Contains(err.Error(), "on purpose") {
		t.Errorf("RunUntilIdle: %v", err)
	}
	// Another owns it: two restarts, one with many events to come.
	for range 2 {
		owner := s.another(millrace.Config{}, s.projection)
		stop := s.start(owner)
		s.eventually("the next node owns it", func() bool { p := s.status(remote, "p"); return p.Owner != "" && p.NotOwned == 0 })
		s.append("c", 20)
		s.mustBeStopped(owner)
		s.mustBeStopped(remote)
		stop()
	}
	if n := s.calls.Load(); n != calls {
		t.Errorf("the handler was called %d times while the projection was stopped", n-calls)
	}
	// What makes it look again is not enough to make it go on.
	owner := s.another(millrace.Config{}, s.projection)
	s.start(owner)
	s.eventually("the last node owns it", func() bool { p := s.status(remote, "p"); return p.Owner != "" && p.NotOwned == 0 })
	for range 30 {
		s.exec("select pg_notify('millrace_control', id::text) from millrace.projections where name = 'p'")
		s.mustBeStopped(remote)
	}
	// Paused it stays what it is, and resumed it tries again, with as many attempts as at first.
	if err := remote.Pause(s.ctx, s.id); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is paused", func() bool { return s.status(owner, "p").State == millrace.StatePaused })
	if n := s.calls.Load(); n != calls {
		t.Errorf("the handler was called %d times while the projection was paused", n-calls)
	}
	if err := remote.Resume(s.ctx, s.id); err != nil {
		t.Fatal(err)
	}
	s.eventually("it was tried again", func() bool { return s.calls.Load() >= calls+3 })
	s.mustBeStopped(owner)

	s.mended.Store(true)
	if err := remote.Resume(s.ctx, s.id); err != nil {
		t.Fatal(err)
	}
	if err := remote.WaitFor(s.ctx, s.id, s.head()); err != nil {
		t.Fatal(err)
	}
	s.verify("p")
	if p := s.status(owner, "p"); p.State == millrace.StateFailed || p.Reason != "" {
		t.Errorf("it is mended, and status says %+v", p)
	}
}

func TestProjectionThatIsPausedWhileItFailsStopsAtNothing(t *testing.T) {
	t.Parallel()
	s := newStopped(t)
	rt := s.runtime(millrace.Config{}, s.projection)
	s.start(rt)
	s.mustBeStopped(rt)
	if err := rt.Pause(s.ctx, s.id); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is paused", func() bool { return s.status(rt, "p").State == millrace.StatePaused })
	s.mended.Store(true)
	if err := rt.Resume(s.ctx, s.id); err != nil {
		t.Fatal(err)
	}
	if err := rt.WaitFor(s.ctx, s.id, s.last); err != nil {
		t.Fatal(err)
	}
	s.verify("p")
}

func TestHandlerSaysWhatBecomesOfItsEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	poison := b.append("a", 20).Positions[7]
	last := b.append("b", 20).Positions[19]
	type asked struct {
		want  projection.Action
		calls *atomic.Int64
	}
	wishes := make(map[string]asked)
	var projections []millrace.Projection
	for want, ask := range map[projection.Action]func(error) error{
		projection.ActionPark: projection.Park, projection.ActionSkip: projection.Skip, projection.ActionStop: projection.Stop, projection.ActionRetry: projection.Retry,
	} {
		for how, fail := range map[string]func(context.Context, pgx.Tx, int64) error{
			"returned":      func(context.Context, pgx.Tx, int64) error { return ask(errOnPurpose) },
			"inside of At":  func(_ context.Context, _ pgx.Tx, p int64) error { return projection.At(p, ask(errOnPurpose)) },
			"outside of At": func(_ context.Context, _ pgx.Tx, p int64) error { return ask(projection.At(p, errOnPurpose)) },
			"panic":         func(context.Context, pgx.Tx, int64) error { panic(ask(errOnPurpose)) },
			"of an SQL error": func(ctx context.Context, tx pgx.Tx, _ int64) error {
				return ask(fmt.Errorf("%w: %w", errOnPurpose, execute("select 1/0")(ctx, tx)))
			},
		} {
			name := fmt.Sprint(want, ", ", how)
			calls := new(atomic.Int64)
			wishes[name] = asked{want, calls}
			// All else that is set says something else, and a second attempt would be told by the calls.
			p := millrace.Projection{Name: name, Retry: soon(5), OnFailure: projection.ActionStop,
				FailureHandler: func(context.Context, projection.Failure) projection.Action { return projection.ActionStop }}
			switch want {
			case projection.ActionStop:
				p.OnFailure = projection.ActionPark
				p.FailureHandler = func(context.Context, projection.Failure) projection.Action { return projection.ActionPark }
			case projection.ActionRetry:
				p.Retry = soon(-1)
			}
			p.Handler = pgstore.Batch(failsAt(name, only(poison), func(ctx context.Context, tx pgx.Tx, batch int, position int64) error {
				if batch == 1 && calls.Add(1) == 5 {
					return nil // only one that is retried comes so far
				}
				return fail(ctx, tx, position)
			}))
			projections = append(projections, p)
		}
	}
	rt := b.runtime(millrace.Config{}, projections...)
	b.start(rt)
	for name, wish := range wishes {
		err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: name}, last)
		if (err != nil) != (wish.want == projection.ActionStop) {
			t.Errorf("%s: waiting for it: %v", name, err)
		}
		letters, s, calls := b.letters(name), b.status(rt, name), int64(1)
		parked, skipped := 0, int64(0)
		switch wish.want {
		case projection.ActionPark:
			parked = 1
			b.verify(name, poison)
		case projection.ActionSkip:
			skipped = 1
			b.verify(name, poison)
		case projection.ActionRetry:
			calls = 5
			b.verify(name)
		}
		if n := wish.calls.Load(); n != calls || len(letters) != parked || s.Skipped != skipped || (s.State == millrace.StateFailed) != (err != nil) {
			t.Errorf("%s: %d calls for the event alone, want %d; dead letters %v, status %+v", name, n, calls, letters, s)
		}
	}
}

func TestPermanentErrorIsNotRetried(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	poison := b.append("a", 20).Positions[7]
	calls := make(map[string]*atomic.Int64)
	var projections []millrace.Projection
	retry := func(context.Context, projection.Failure) projection.Action { return projection.ActionRetry }
	for name, p := range map[string]millrace.Projection{
		"parked": {}, "skipped": {OnFailure: projection.ActionSkip}, "parked, not retried": {OnFailure: projection.ActionRetry}, "parked over FailureHandler": {FailureHandler: retry},
	} {
		n := new(atomic.Int64)
		calls[name] = n
		p.Name, p.Retry = name, soon(5)
		p.Handler = pgstore.Batch(failsAt(name, only(poison), func(_ context.Context, _ pgx.Tx, batch int, position int64) error {
			if batch == 1 {
				n.Add(1)
			}
			return projection.At(position, fmt.Errorf("around: %w", backoff.Permanent(errOnPurpose)))
		}))
		projections = append(projections, p)
	}
	rt := b.runtime(millrace.Config{}, projections...)
	if _, err := rt.RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	for name, n := range calls {
		b.verify(name, poison)
		s := b.status(rt, name)
		if skipped := name == "skipped"; n.Load() != 1 || s.Parked+s.Skipped != 1 || (s.Skipped == 1) != skipped {
			t.Errorf("%s: called %d times, %+v", name, n.Load(), s)
		}
	}
}

func TestDecideIsToldOfEachFailureAndItsAnswerCounts(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	poison := b.append("a", 20).Positions[7]
	var mu sync.Mutex
	var told []projection.Failure
	p := millrace.Projection{Name: "p", Retry: soon(-1), OnFailure: projection.ActionStop,
		FailureHandler: func(ctx context.Context, f projection.Failure) projection.Action {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, f)
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("FailureHandler may take as long as it likes")
			}
			if f.Attempt < 4 {
				return projection.ActionRetry
			}
			return projection.ActionSkip
		},
		Handler: pgstore.Batch(failsAt("p", only(poison), func(context.Context, pgx.Tx, int, int64) error { panic(errOnPurpose) })),
	}
	rt := b.runtime(millrace.Config{}, p)
	if _, err := rt.RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.verify("p", poison)
	if s := b.status(rt, "p"); s.Skipped != 1 || s.Parked != 0 {
		t.Errorf("%+v", s)
	}
	if len(told) != 4 {
		t.Fatalf("told of %d failures, want 4", len(told))
	}
	for i, f := range told {
		e := f.Event
		if e.Position != poison || e.Stream != "a" || e.Version != 8 || e.Type != "counted" || string(e.Body) != `{"i": 7}` || f.Attempt != i+1 ||
			f.Projection != (projection.ID{Tenant: projection.DefaultTenant, Name: "p"}) || !errors.Is(f.Err, errOnPurpose) ||
			!strings.Contains(f.Stack, "policy_test.go") || f.FirstFailedAt.IsZero() || !f.FirstFailedAt.Equal(told[0].FirstFailedAt) {
			t.Errorf("failure %d: %+v", i+1, f)
		}
	}
}

func TestDecideThatPanicsLeavesItToRetryAndOnFailure(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	poison := b.append("a", 20).Positions[7]
	log, logs := watched()
	p := millrace.Projection{Name: "p", Retry: soon(1), OnFailure: projection.ActionSkip,
		FailureHandler: func(context.Context, projection.Failure) projection.Action { panic("a decision on purpose") },
		Handler:        pgstore.Batch(failsAt("p", only(poison), func(context.Context, pgx.Tx, int, int64) error { return errOnPurpose })),
	}
	rt := b.runtime(millrace.Config{Logger: log}, p)
	if _, err := rt.RunUntilIdle(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.verify("p", poison)
	if s := b.status(rt, "p"); s.Skipped != 1 || s.Parked != 0 {
		t.Errorf("%+v", s)
	}
	said := logs.FilterMessageSnippet("failure handler gave no answer").All()
	if len(said) != 2 || !strings.Contains(fmt.Sprint(said[0].ContextMap()["error"]), "a decision on purpose") {
		t.Errorf("the log says %v", said)
	}
}

func TestFaultsOfTheInfrastructureAreNobodysToDecide(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.exec("create table model (n int)")
	b.exec("insert into model values (0)")
	last := b.append("a", 10).Positions[9]
	release := b.lock("update model set n = -1")
	var asked atomic.Int64
	calls := make(map[string]*atomic.Int64)
	var projections []millrace.Projection
	for name, fail := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"stranger's lock":    execute("update model set n = n + 1"),
		"terminated session": execute("select pg_terminate_backend(pg_backend_pid()); select 1"),
		"deadlock":           raise("40P01"),
		"server full":        raise("53300"),
	} {
		n := new(atomic.Int64)
		calls[name] = n
		projections = append(projections, millrace.Projection{Name: name, MaxEvents: 1, Timeout: 600 * time.Millisecond, Retry: soon(-1), OnFailure: projection.ActionStop,
			FailureHandler: func(context.Context, projection.Failure) projection.Action {
				asked.Add(1)
				return projection.ActionStop
			},
			Handler: pgstore.Batch(failsAt(name, func(int64) bool { return true }, func(ctx context.Context, tx pgx.Tx, _ int, _ int64) error {
				if n.Add(1) > 3 && name != "stranger's lock" {
					return nil
				}
				return projection.Skip(fail(ctx, tx)) // not even the handler is asked
			}))})
	}
	rt := b.runtime(millrace.Config{}, projections...)
	b.start(rt)
	b.eventually("the stranger was waited for", func() bool { return calls["stranger's lock"].Load() >= 3 })
	release()
	for name := range calls {
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: name}, last); err != nil {
			t.Fatal(err)
		}
		b.verify(name)
		if s := b.status(rt, name); s.Parked+s.Skipped != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("FailureHandler was asked %d times", n)
	}
}

func TestProjectionOfWhichNearlyEverythingFailsStopsAndSaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	last := b.append("a", 200).Positions[199]
	var mended atomic.Bool
	fail := func(context.Context, pgx.Tx, int, int64) error {
		if mended.Load() {
			return nil
		}
		return errOnPurpose
	}
	all := func(int64) bool { return true }
	later := func(p int64) bool { return p > 100 }
	projections := []millrace.Projection{
		{Name: "parks", Handler: pgstore.Batch(failsAt("parks", all, fail))},
		{Name: "skips", OnFailure: projection.ActionSkip, Handler: pgstore.Batch(failsAt("skips", all, fail))},
		{Name: "later", Handler: pgstore.Batch(failsAt("later", later, fail))},
		{Name: "strict", MaxFailureShare: 0.2, Handler: pgstore.Batch(failsAt("strict", later, fail))},
		{Name: "off", MaxFailureShare: -1, Handler: pgstore.Batch(failsAt("off", all, fail))},
	}
	for i := range projections {
		projections[i].Retry = soon(-1)
	}
	rt := b.runtime(millrace.Config{}, projections...)
	b.start(rt)
	failures := make(map[string]int64)
	for name, want := range map[string]struct {
		left int64
		says string
	}{
		"parks": {19, "20 of the last 20 events failed"}, "skips": {19, "20 of the last 20 events failed"},
		"later": {50, "51 of the last 100 events failed"}, "strict": {20, "21 of the last 100 events failed"}, "off": {200, ""},
	} {
		err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: name}, last)
		if (err != nil) != (want.says != "") || err != nil && (!strings.Contains(err.Error(), want.says) || !strings.Contains(err.Error(), "on purpose")) {
			t.Errorf("%s: waiting for it: %v", name, err)
		}
		s := b.status(rt, name)
		if failures[name] = s.Parked + s.Skipped; failures[name] != want.left || (s.State == millrace.StateFailed) != (err != nil) {
			t.Errorf("%s: %+v, want %d parked or skipped", name, s, want.left)
		}
	}
	// Resumed it begins to count anew, and nothing was lost.
	parks := millrace.ProjectionID{Name: "parks"}
	if err := rt.Resume(b.ctx, parks); err != nil {
		t.Fatal(err)
	}
	b.eventually("it stopped again", func() bool { s := b.status(rt, "parks"); return s.Parked == 38 && s.State == millrace.StateFailed })
	mended.Store(true)
	if err := rt.Resume(b.ctx, parks); err != nil {
		t.Fatal(err)
	}
	if err := rt.WaitFor(b.ctx, parks, last); err != nil {
		t.Fatal(err)
	}
	var parked []int64
	for _, l := range b.letters("parks") {
		parked = append(parked, l.Position)
	}
	if len(parked) != 38 {
		t.Errorf("%d events are parked, want 38", len(parked))
	}
	b.verify("parks", parked...)
}
