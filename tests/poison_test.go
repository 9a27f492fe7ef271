package tests_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// Every policy treats all failures alike, however the handler is called.
func TestEveryPolicyTreatsAllFailuresAlike(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.With(t, 16).Patient() // most of them wait
		f := kit.NewFates(b)
		var mended atomic.Bool
		var projections []millrace.Projection
		calls := make(map[string]*atomic.Int64)
		each := func(do func(name, policy, kind string, single bool)) {
			for policy := range kit.Courses() {
				for kind := range b.Kind.AllFaults() {
					do(policy+": "+kind, policy, kind, false)
					if policy == "park" || policy == "stop" {
						do(policy+": "+kind+", single", policy, kind, true)
					}
				}
			}
		}
		each(func(name, policy, kind string, single bool) {
			c, fault, n := kit.Courses()[policy], b.Kind.AllFaults()[kind], new(atomic.Int64)
			p := c.Shape
			p.Name, p.MaxEvents, p.Timeout = name, 4, 30*time.Second
			if strings.HasPrefix(kind, "timeout") {
				p.Timeout = 400 * time.Millisecond
			}
			handler := kit.FailsAt(name, kit.Only(f.Poison),
				func(ctx context.Context, tx kit.Tx, batch int, _ int64) error {
					if batch > 1 {
						return kit.ErrOnPurpose // so that the handler is slow only for a batch of this event alone
					}
					if n.Load() >= c.Calls && !c.Fails() || mended.Load() {
						return nil
					}
					return fault.Fail(ctx, tx)
				})
			counted := func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				if len(events) == 1 && events[0].Position == f.Poison {
					n.Add(1) // also if the time passes before the handler has recorded the event
				}
				return handler(ctx, tx, events)
			}
			p.Handler = b.Store.Batch(counted)
			if single {
				p.Handler = b.Store.Each(kit.OneByOne(counted))
			}
			calls[name], projections = n, append(projections, p)
		})
		log, logs := kit.Logs()
		// An attempt during which the lease is lost, or that cannot be recorded, does not count. On a busy machine,
		// both take more time.
		rt := f.Running(millrace.Config{Store: tuning.Settings{Query: time.Minute}, Logger: log,
			LeaseDuration: time.Minute}, projections...)
		skips := 0
		each(func(name, policy, kind string, single bool) {
			c := kit.Courses()[policy]
			f.MustHaveGone(rt, name, c, b.Kind.AllFaults()[kind].Says)
			// The handler of single events is also called for the event in its batch, unless the failure comes only
			// with the commit. On a busy machine, the time may also pass in a call that was to succeed.
			more := single || strings.HasPrefix(kind, "timeout") && !c.Fails()
			if n := calls[name].Load(); n < c.Calls || n > c.Calls && !more {
				t.Errorf("%s: %d calls for the event alone, want %d", name, n, c.Calls)
			}
			if letters := f.DeadLettersOf(name); c.Parks &&
				strings.Contains(letters[0].Stack, "poison_test.go") != (kind == "panic") {
				t.Errorf("%s: stack %q", name, letters[0].Stack)
			}
			if c.Skips {
				skips++
			}
		})
		warnings := logs.FilterMessage("event skipped").All()
		if len(warnings) != skips {
			t.Fatalf("%d warnings for %d skipped events", len(warnings), skips)
		}
		if w := warnings[0].ContextMap(); w["position"] != f.Poison || w["type"] != "counted" || w["stream"] != "a" ||
			w["attempt"] == int64(0) {
			t.Errorf("the warning says %v", w)
		}
		mended.Store(true)
		each(func(name, policy, _ string, _ bool) {
			if kit.Courses()[policy].Stops {
				f.Resume(rt, name)
				f.Reaches(rt, name, f.Last)
				f.Verify(name)
			}
		})
	})
}

func TestAttemptsSurviveARestart(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		const retries = 6
		b := kind.New(t)
		poison := b.Append("a", 1).Positions[0]
		var calls atomic.Int64
		p := millrace.Projection{Name: "p", Retry: projection.RetryPolicy{MaxAttempts: retries + 1,
			Base: 50 * time.Millisecond, Factor: 1},
			Handler: b.Store.Batch(kit.FailsAt("p", kit.Only(poison), func(context.Context, kit.Tx, int, int64) error {
				calls.Add(1)
				return kit.ErrOnPurpose
			}))}
		stop := b.Start(b.Runtime(millrace.Config{}, p))
		b.Eventually("two failures", func() bool { return calls.Load() >= 2 })
		stop()
		if n := calls.Load(); n > retries {
			t.Fatalf("called %d times already: nothing is left for the second run", n)
		}
		b.Idle(p)
		if n := calls.Load(); n != retries+1 {
			t.Errorf("called %d times, want %d", n, retries+1)
		}
		if letters := b.DeadLettersOf("p"); len(letters) != 1 || letters[0].Attempts != retries+1 {
			t.Errorf("dead letters %v", letters)
		}
	})
}

func TestNarrowingIsNotCountedAndNotNeededIfTheHandlerNamesTheEvent(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		poison := b.Append("a", 64).Positions[40]
		var halved, named atomic.Int64
		fails := func(name string, failed *atomic.Int64, at func(int64, error) error) millrace.Projection {
			return millrace.Projection{Name: name, OnFailure: projection.ActionPark, Retry: kit.Soon(1),
				Handler: b.Store.Batch(kit.FailsAt(name, kit.Only(poison),
					func(_ context.Context, _ kit.Tx, batch int, position int64) error {
						if batch > 1 {
							failed.Add(1)
						}
						return at(position, kit.ErrOnPurpose)
					}))}
		}
		b.Idle(fails("halved", &halved, func(_ int64, err error) error { return err }),
			fails("named", &named, projection.At))
		for _, name := range []string{"halved", "named"} {
			b.Verify(name, poison)
			if letters := b.DeadLettersOf(name); len(letters) != 1 || letters[0].Attempts != 2 {
				t.Errorf("%s: dead letters %v", name, letters)
			}
		}
		if named.Load() != 1 || halved.Load() < 4 || halved.Load() > 12 {
			t.Errorf("%d batches failed if the event was named, %d if not", named.Load(), halved.Load())
		}
	})
}

// stopped is a projection that stops at the poison event while mended is false.
type stopped struct {
	*kit.Fates
	calls      atomic.Int64
	mended     atomic.Bool
	projection millrace.Projection
}

func newStopped(b *kit.Bundle) *stopped {
	s := &stopped{Fates: kit.NewFates(b)}
	s.projection = millrace.Projection{Name: "p", Retry: kit.Soon(2), OnFailure: projection.ActionStop,
		Handler: b.Store.Batch(kit.FailsAt("p", kit.Only(s.Poison), func(context.Context, kit.Tx, int, int64) error {
			s.calls.Add(1)
			if s.mended.Load() {
				return nil
			}
			return kit.ErrOnPurpose
		}))}
	return s
}

// mustBeStopped checks that a runtime says that it has stopped, and why.
func (s *stopped) mustBeStopped(rt *millrace.Runtime) {
	s.T.Helper()
	if err := rt.WaitFor(s.Ctx, millrace.ProjectionID{Name: "p"}, s.Last); !errors.Is(err, projection.ErrFailed) ||
		!strings.Contains(err.Error(), fmt.Sprintf("position %d, attempt 3: on purpose", s.Poison)) {
		s.T.Errorf("waiting for it: %v", err)
	}
	if p := s.Is(rt, "p", admin.StateFailed); !strings.Contains(p.Reason, "on purpose") || p.Checkpoint != s.Poison-1 {
		s.T.Errorf("status says %+v", p)
	}
}

func TestStopSurvivesRestartsAndMovesAndIsKnownEverywhere(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := newStopped(b)
		remote := s.Runtime(millrace.Config{}, b.Recorders("other")...)
		first := s.Another(millrace.Config{}, s.projection)
		stop := s.Start(first)
		s.mustBeStopped(first)
		s.mustBeStopped(remote)
		calls := s.calls.Load()

		// No node owns it.
		stop()
		s.mustBeStopped(remote)
		_, err := s.Runtime(millrace.Config{}, s.projection).RunUntilIdle(s.Ctx)
		if !errors.Is(err, projection.ErrFailed) || !strings.Contains(err.Error(), "on purpose") {
			t.Errorf("RunUntilIdle: %v", err)
		}
		// Another node owns it.
		for range 2 {
			owner := s.Another(millrace.Config{}, s.projection)
			stop := s.Start(owner)
			s.Eventually("the next node owns it",
				func() bool { p := s.Status(remote, "p"); return p.Owner != "" && p.NotOwned == 0 })
			s.Append("c", 20)
			s.mustBeStopped(owner)
			s.mustBeStopped(remote)
			stop()
		}
		if n := s.calls.Load(); n != calls {
			t.Errorf("the handler was called %d times while the projection was stopped", n-calls)
		}
		// A command makes its owner check it, and it stays stopped.
		owner := s.Another(millrace.Config{}, s.projection)
		s.Start(owner)
		s.Eventually("the last node owns it",
			func() bool { p := s.Status(remote, "p"); return p.Owner != "" && p.NotOwned == 0 })
		for range 30 {
			_, err := s.Store.DeadLetters(millrace.ProjectionID{Name: "p"}).Discard(s.Ctx,
				projection.DeadLetterFilter{All: true}, 1)
			b.Must(err)
			s.mustBeStopped(remote)
		}
		// A pause changes nothing, and after a resume it has as many attempts as at first.
		s.Pause(remote, "p")
		s.Is(owner, "p", admin.StatePaused)
		if n := s.calls.Load(); n != calls {
			t.Errorf("the handler was called %d times while the projection was paused", n-calls)
		}
		s.Resume(remote, "p")
		s.Eventually("it was tried again", func() bool { return s.calls.Load() >= calls+3 })
		s.mustBeStopped(owner)

		s.mended.Store(true)
		s.Resume(remote, "p")
		s.Applied(remote, s.Head(), "p")
		if p := s.Status(owner, "p"); p.State == admin.StateFailed || p.Reason != "" {
			t.Errorf("it is mended, and status says %+v", p)
		}
	})
}

func TestHandlerRequestsTheActionForItsEvent(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		poison := b.Append("a", 20).Positions[7]
		last := b.Append("b", 20).Positions[19]
		type asked struct {
			want  projection.Action
			calls *atomic.Int64
		}
		requests := make(map[string]asked)
		var projections []millrace.Projection
		for want, ask := range map[projection.Action]func(error) error{
			projection.ActionPark: projection.Park, projection.ActionSkip: projection.Skip,
			projection.ActionStop: projection.Stop, projection.ActionRetry: projection.Retry,
		} {
			for how, fail := range map[string]func(context.Context, kit.Tx, int64) error{
				"returned": func(context.Context, kit.Tx, int64) error { return ask(kit.ErrOnPurpose) },
				"inside of At": func(_ context.Context, _ kit.Tx, p int64) error {
					return projection.At(p, ask(kit.ErrOnPurpose))
				},
				"outside of At": func(_ context.Context, _ kit.Tx, p int64) error {
					return ask(projection.At(p, kit.ErrOnPurpose))
				},
				"panic": func(context.Context, kit.Tx, int64) error { panic(ask(kit.ErrOnPurpose)) },
				"of an SQL error": func(ctx context.Context, tx kit.Tx, _ int64) error {
					return ask(fmt.Errorf("%w: %w", kit.ErrOnPurpose, b.Kind.Faults["SQL error"].Fail(ctx, tx)))
				},
			} {
				name := fmt.Sprint(want, ", ", how)
				calls := new(atomic.Int64)
				requests[name] = asked{want, calls}
				// Every setting asks for another action, and the calls show a second attempt.
				p := millrace.Projection{Name: name, Retry: kit.Soon(5), OnFailure: projection.ActionStop,
					FailureHandler: func(context.Context, projection.Failure) projection.Action {
						return projection.ActionStop
					}}
				switch want {
				case projection.ActionStop:
					p.OnFailure = projection.ActionPark
					p.FailureHandler = func(context.Context, projection.Failure) projection.Action {
						return projection.ActionPark
					}
				case projection.ActionRetry:
					p.Retry = kit.Soon(0)
				}
				p.Handler = b.Store.Batch(kit.FailsAt(name, kit.Only(poison),
					func(ctx context.Context, tx kit.Tx, batch int, position int64) error {
						if batch == 1 && calls.Add(1) == 5 {
							return nil // only an event that is retried reaches this line
						}
						return fail(ctx, tx, position)
					}))
				projections = append(projections, p)
			}
		}
		rt := b.Running(millrace.Config{}, projections...)
		for name, request := range requests {
			err := rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: name}, last)
			if (err != nil) != (request.want == projection.ActionStop) {
				t.Errorf("%s: waiting for it: %v", name, err)
			}
			letters, s, calls := b.DeadLettersOf(name), b.Status(rt, name), int64(1)
			parked, skipped := 0, int64(0)
			switch request.want {
			case projection.ActionPark:
				parked = 1
				b.Verify(name, poison)
			case projection.ActionSkip:
				skipped = 1
				b.Verify(name, poison)
			case projection.ActionRetry:
				calls = 5
				b.Verify(name)
			}
			if n := request.calls.Load(); n != calls || len(letters) != parked || s.Skipped != skipped ||
				(s.State == admin.StateFailed) != (err != nil) {
				t.Errorf("%s: %d calls for the event alone, want %d; dead letters %v, status %+v", name, n, calls,
					letters, s)
			}
		}
	})
}

func TestFailureHandlerGetsEachFailureAndItsAnswerCounts(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		poison := b.Append("a", 20).Positions[7]
		var mu sync.Mutex
		var failures []projection.Failure
		rt := b.Idle(millrace.Projection{Name: "p", Retry: kit.Soon(0), OnFailure: projection.ActionStop,
			FailureHandler: func(ctx context.Context, f projection.Failure) projection.Action {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, f)
				if _, bounded := ctx.Deadline(); !bounded {
					t.Error("FailureHandler has no deadline")
				}
				if f.Attempt < 4 {
					return projection.ActionRetry
				}
				return projection.ActionSkip
			},
			Handler: b.Store.Batch(kit.FailsAt("p", kit.Only(poison),
				func(context.Context, kit.Tx, int, int64) error { panic(kit.ErrOnPurpose) })),
		})
		b.Verify("p", poison)
		if s := b.Status(rt, "p"); s.Skipped != 1 || s.Parked != 0 {
			t.Errorf("%+v", s)
		}
		if len(failures) != 4 {
			t.Fatalf("FailureHandler got %d failures, want 4", len(failures))
		}
		for i, f := range failures {
			e := f.Event
			if e.Position != poison || e.Stream != "a" || e.Version != 8 || e.Type != "counted" ||
				string(e.Body) != `{"i": 7}` || f.Attempt != i+1 ||
				f.Projection != (projection.ID{Tenant: projection.DefaultTenant, Name: "p"}) ||
				!errors.Is(f.Err, kit.ErrOnPurpose) ||
				!strings.Contains(f.Stack, "poison_test.go") || f.FirstFailedAt.IsZero() ||
				!f.FirstFailedAt.Equal(failures[0].FirstFailedAt) {
				t.Errorf("failure %d: %+v", i+1, f)
			}
		}
	})
}

func TestFailureHandlerThatPanicsLeavesTheDecisionToRetryAndOnFailure(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		poison := b.Append("a", 20).Positions[7]
		log, logs := kit.Logs()
		p := millrace.Projection{Name: "p", Retry: kit.Soon(1), OnFailure: projection.ActionSkip,
			FailureHandler: func(context.Context, projection.Failure) projection.Action {
				panic("a decision on purpose")
			},
			Handler: b.Store.Batch(kit.FailsAt("p", kit.Only(poison), kit.Fails)),
		}
		rt := b.Runtime(millrace.Config{Logger: log}, p)
		b.RunUntilIdle(rt)
		b.Verify("p", poison)
		if s := b.Status(rt, "p"); s.Skipped != 1 || s.Parked != 0 {
			t.Errorf("%+v", s)
		}
		said := logs.FilterMessageSnippet("failure handler gave no answer").All()
		if len(said) != 2 || !strings.Contains(fmt.Sprint(said[0].ContextMap()["error"]), "a decision on purpose") {
			t.Errorf("the log says %v", said)
		}
	})
}

func TestProjectionStopsIfNearlyAllItsEventsFail(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		last := b.Append("a", 200).Positions[199]
		var mended atomic.Bool
		fail := func(context.Context, kit.Tx, int, int64) error {
			if mended.Load() {
				return nil
			}
			return kit.ErrOnPurpose
		}
		later := func(p int64) bool { return p > 100 }
		projections := []millrace.Projection{
			{
				Name: "parks", OnFailure: projection.ActionPark,
				Handler: b.Store.Batch(kit.FailsAt("parks", kit.Any, fail)),
			},
			{
				Name: "skips", OnFailure: projection.ActionSkip,
				Handler: b.Store.Batch(kit.FailsAt("skips", kit.Any, fail)),
			},
			{
				Name: "later", OnFailure: projection.ActionPark,
				Handler: b.Store.Batch(kit.FailsAt("later", later, fail)),
			},
			{
				Name: "strict", OnFailure: projection.ActionPark, MaxFailureShare: 0.2,
				Handler: b.Store.Batch(kit.FailsAt("strict", later, fail)),
			},
			{
				Name: "off", OnFailure: projection.ActionPark, MaxFailureShare: projection.NoLimit,
				Handler: b.Store.Batch(kit.FailsAt("off", kit.Any, fail)),
			},
		}
		for i := range projections {
			projections[i].Retry = kit.Soon(0)
		}
		rt := b.Running(millrace.Config{}, projections...)
		for name, want := range map[string]struct {
			left int64
			says string
		}{
			"parks": {19, "20 of the last 20 events failed"}, "skips": {19, "20 of the last 20 events failed"},
			"later": {50, "51 of the last 100 events failed"}, "strict": {20, "21 of the last 100 events failed"},
			"off": {200, ""},
		} {
			err := rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: name}, last)
			if (err != nil) != (want.says != "") ||
				err != nil && (!strings.Contains(err.Error(), want.says) ||
					!strings.Contains(err.Error(), "on purpose")) {
				t.Errorf("%s: waiting for it: %v", name, err)
			}
			s := b.Status(rt, name)
			if s.Parked+s.Skipped != want.left || (s.State == admin.StateFailed) != (err != nil) {
				t.Errorf("%s: %+v, want %d parked or skipped", name, s, want.left)
			}
		}
		// After a resume it counts from zero, and nothing was lost.
		b.Resume(rt, "parks")
		b.Eventually("it stopped again",
			func() bool { s := b.Status(rt, "parks"); return s.Parked == 38 && s.State == admin.StateFailed })
		mended.Store(true)
		b.Resume(rt, "parks")
		b.Reaches(rt, "parks", last)
		var parked []int64
		for _, l := range b.DeadLettersOf("parks") {
			parked = append(parked, l.Position)
		}
		if len(parked) != 38 {
			t.Errorf("%d events are parked, want 38", len(parked))
		}
		b.Verify("parks", parked...)
	})
}

func TestOutagesAreRetriedWithoutCounting(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.With(t, 8)
		poison := b.Append("a", 20).Positions[7]
		var projections []millrace.Projection
		for name, fail := range kind.Outages {
			var calls atomic.Int64
			projections = append(projections, millrace.Projection{Name: name,
				Retry: kit.Soon(0), MaxEvents: 5, OnFailure: projection.ActionStop,
				FailureHandler: func(context.Context, projection.Failure) projection.Action {
					t.Errorf("%s: FailureHandler was asked", name)
					return projection.ActionStop
				},
				Handler: b.Store.Batch(kit.FailsAt(name, kit.Only(poison),
					func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
						if calls.Add(1) > 4 {
							return nil
						}
						if err := fail(ctx, tx); err != nil {
							return projection.Skip(err) // not even the handler is asked
						}
						return nil
					}))})
		}
		b.Idle(projections...)
		for _, p := range projections {
			b.Verify(p.Name)
			if letters := b.DeadLettersOf(p.Name); len(letters) != 0 {
				t.Errorf("%s: dead letters %v", p.Name, letters)
			}
		}
	})
}

// soon are limits that a test can wait for.
var soon = faults.Limits{Faults: 4, Over: 300 * time.Millisecond}

// If the same event fails repeatedly while the store works, the failure is counted in the end.
func TestOutageOfOneEventAloneCountsInTheEnd(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		poison := b.Append("a", 30).Positions[12]
		b.Append("b", 30)
		calls := make(map[string]*atomic.Int64)
		var projections []millrace.Projection
		for _, outage := range []string{"disk full", "read only"} {
			for _, form := range []string{"batch", "each", "deliver"} {
				name, alone := outage+", "+form, new(atomic.Int64)
				calls[name] = alone
				handler := kit.FailsAt(name, kit.Only(poison),
					func(ctx context.Context, tx kit.Tx, batch int, _ int64) error {
						if batch == 1 {
							alone.Add(1)
						}
						return b.Kind.Outages[outage](ctx, tx)
					})
				projections = append(projections, millrace.Projection{Name: name,
					MaxEvents: 16, OnFailure: projection.ActionPark, Retry: kit.Soon(1),
					Handler: kit.Limited(map[string]millrace.Handler{
						"batch": b.Store.Batch(handler), "each": b.Store.Each(kit.OneByOne(handler)),
						"deliver": millrace.DeliverEach(func(ctx context.Context, e millrace.Delivered) error {
							return b.Store.InTx(ctx,
								func(ctx context.Context, tx kit.Tx) error {
									return handler(ctx, tx, []event.Envelope{e.Envelope})
								})
						})}[form], soon)})
			}
		}
		log, logs := kit.Logs()
		b.RunUntilIdle(b.Runtime(millrace.Config{Logger: log}, projections...))
		for _, p := range projections {
			b.Verify(p.Name, poison)
			if letters := b.DeadLettersOf(p.Name); len(letters) != 1 || letters[0].Position != poison ||
				letters[0].Attempts != 2 {
				t.Errorf("%s: parked %+v", p.Name, letters)
			}
			// Three faults are not counted, two are.
			if n := calls[p.Name].Load(); n < 5 {
				t.Errorf("%s: called %d times for the event alone", p.Name, n)
			}
		}
		if n := logs.FilterMessage("database unusable, all actors wait").Len(); n != 0 {
			t.Errorf("the store was taken for unusable %d times", n)
		}
	})
}
