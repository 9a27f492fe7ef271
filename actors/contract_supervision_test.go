package actors_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

type strategyFunc func(s actor.Supervisor, child *actor.PID, stats *actor.RestartStatistics, reason any)

func (f strategyFunc) HandleFailure(_ *actor.ActorSystem, s actor.Supervisor, child *actor.PID,
	stats *actor.RestartStatistics, reason, _ any,
) {
	f(s, child, stats, reason)
}

func stopEveryFailure() actor.PropsOption {
	return actor.WithSupervisor(strategyFunc(func(s actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics,
		_ any) {
		s.StopChildren(child)
	}))
}

// A child is restarted ten times in ten seconds. The eleventh failure stops it. Its parent cannot distinguish that from
// an orderly stop; only a subscriber of SupervisorEvent can.
func TestDefaultStrategyStopsAChildThatFailsOften(t *testing.T) {
	for name, test := range map[string]struct {
		interval             time.Duration
		failures, wantStarts int
		wantStopped          bool
	}{
		"eleven at once":         {0, 11, 11, true},
		"ten at once":            {0, 10, 11, false},
		"a hundred, 1.1 s apart": {1100 * time.Millisecond, 100, 101, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var starts int
				var last actor.Directive
				var reason = actor.TerminatedReason_NotFound
				r.system.EventStream.Subscribe(func(event any) {
					if e, ok := event.(*actor.SupervisorEvent); ok {
						last = e.Directive
					}
				})
				var child *actor.PID
				parent := r.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
					switch message := ctx.Message().(type) {
					case *actor.Started:
						child = ctx.Spawn(actor.PropsFromFunc(all(onStarted(func(actor.Context) { starts++ }),
							panicAt("bad"))))
					case *actor.Terminated:
						reason = message.Why
					}
				}))
				synctest.Wait()
				for range test.failures {
					r.send(child, "bad")
					<-time.After(test.interval)
					synctest.Wait()
				}
				if starts != test.wantStarts {
					t.Errorf("%d starts, want %d", starts, test.wantStarts)
				}
				if stopped := last == actor.StopDirective; stopped != test.wantStopped {
					t.Errorf("last directive %v, want a stop: %v", last, test.wantStopped)
				}
				if stopped := reason == actor.TerminatedReason_Stopped; stopped != test.wantStopped {
					t.Errorf("the parent got %v, want %v: %v", reason, actor.TerminatedReason_Stopped, test.wantStopped)
				}
				r.stop(parent)
				synctest.Wait()
			})
		})
	}
}

// The delay is the number of failures times the initial one. The count falls back to one as soon as a delay has
// outgrown the window, which makes a saw-tooth; a window that is never outgrown leaves the delay without a cap.
func TestExponentialBackoffStrategyIsLinear(t *testing.T) {
	for name, test := range map[string]struct {
		window time.Duration
		want   []time.Duration // in units of the initial delay
	}{
		"and saw-toothed":       {time.Second, []time.Duration{1, 2, 3, 4, 1, 2, 3, 4, 1}},
		"and without a ceiling": {24 * time.Hour, []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9}},
	} {
		t.Run(name, func(t *testing.T) {
			const initial = 300 * time.Millisecond
			inBubble(t, func(r *rig) {
				var failed time.Time
				var delays []time.Duration
				parent := r.system.Root.Spawn(actor.PropsFromFunc(onStarted(func(ctx actor.Context) {
					ctx.Spawn(actor.PropsFromFunc(onStarted(func(actor.Context) {
						if !failed.IsZero() {
							delays = append(delays, time.Since(failed).Round(time.Millisecond)/initial)
						}
						failed = time.Now()
						if len(delays) < len(test.want) {
							panic("boom")
						}
					})))
				}), actor.WithSupervisor(actor.NewExponentialBackoffStrategy(test.window, initial))))
				<-time.After(outlastTimers)
				synctest.Wait()
				if !slices.Equal(delays, test.want) {
					t.Errorf("delays of %v times the initial one, want %v", delays, test.want)
				}
				r.stop(parent)
				synctest.Wait()
			})
		})
	}
}

func TestStrategyRunsInTheParentsTurnWithThePanicValue(t *testing.T) {
	inBubble(t, func(r *rig) {
		gate := make(chan struct{})
		type value struct{ text string }
		var parent, child *actor.PID
		strategy := strategyFunc(func(s actor.Supervisor, who *actor.PID, _ *actor.RestartStatistics, reason any) {
			ctx, ok := s.(actor.Context)
			if !ok || !ctx.Self().Equal(parent) {
				t.Errorf("the supervisor is %T, want the parent's context", s)
			}
			if !who.Equal(child) || reason != any(value{"boom"}) {
				t.Errorf("failure of %v with %v, want %v with the panic's value", who, reason, child)
			}
			r.note("strategy called")
			s.ResumeChildren(who)
		})
		parent = r.spawn(r.system.Root, "parent", all(holdAt("hold", gate), onStarted(func(ctx actor.Context) {
			child = r.spawn(ctx, "child", func(ctx actor.Context) {
				if ctx.Message() == any("bad") {
					panic(value{"boom"})
				}
			})
		})), actor.WithSupervisor(strategy))
		r.expect("parent started", "child started")

		r.send(parent, "hold")
		r.expect("parent got hold")
		r.send(child, "bad")
		r.expect("child got bad")
		close(gate)
		r.expect("strategy called")
		r.stop(parent)
		r.expect("parent stopping", "child stopping", "child stopped", "parent saw child terminated", "parent stopped")
	})
}

// Therefore a strategy may do nothing, and stop the child later.
func TestStopReachesAChildSuspendedByItsFailure(t *testing.T) {
	inBubble(t, func(r *rig) {
		undecided := strategyFunc(func(actor.Supervisor, *actor.PID, *actor.RestartStatistics, any) {
			r.note("undecided")
		})
		parent, child := r.family(panicAt("bad"), actor.WithSupervisor(undecided))
		r.send(child, "bad", "queued")
		r.expect("child got bad", "undecided")
		<-time.After(outlastTimers)
		r.expect()
		r.stop(child)
		r.expect("child stopping", "child stopped", "parent saw child terminated")
		r.stop(parent)
		r.expect("parent stopping", "parent stopped")
	})
}

func TestStopChildrenInHandleFailureLeadsToTerminated(t *testing.T) {
	inBubble(t, func(r *rig) {
		gate := make(chan struct{})
		parent, child := r.family(all(holdAt("hold", gate), panicAt("bad")), stopEveryFailure())
		r.send(child, "hold", "bad", "queued")
		r.expect("child got hold")
		close(gate)
		r.expect("child got bad", "child stopping", "child stopped", "parent saw child terminated")
		r.stop(parent)
		r.expect("parent stopping", "parent stopped")
	})
}

func TestStrategyIsStillCalledWhileTheParentStops(t *testing.T) {
	inBubble(t, func(r *rig) {
		gate := make(chan struct{})
		asked := strategyFunc(func(s actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, _ any) {
			r.note("strategy called")
			s.StopChildren(child)
		})
		parent, child := r.family(all(holdAt("hold", gate), panicAt("hold")), actor.WithSupervisor(asked))
		r.send(child, "hold")
		r.expect("child got hold")
		r.stop(parent)
		r.expect("parent stopping")
		close(gate)
		r.expectInAnyOrder("strategy called", "child stopping", "child stopped", "parent saw child terminated",
			"parent stopped")
	})
}

func panickyStrategy() actor.PropsOption {
	return actor.WithSupervisor(strategyFunc(func(actor.Supervisor, *actor.PID, *actor.RestartStatistics, any) {
		panic("strategy")
	}))
}

// The panic counts as a failure of the parent, so the strategy one level up decides about the parent. The default one
// restarts it, and a restart stops every child first.
func TestHandleFailurePanicStopsEveryChildAndRestartsTheParent(t *testing.T) {
	inBubble(t, func(r *rig) {
		var bad *actor.PID
		var lives int
		parent := r.spawn(r.system.Root, "parent", onStarted(func(ctx actor.Context) {
			lives++
			if lives == 1 {
				bad = r.spawn(ctx, "bad", panicAt("bad"))
				r.spawn(ctx, "innocent", nil)
			}
		}), panickyStrategy())
		r.expectInAnyOrder("parent started", "bad started", "innocent started")
		r.send(bad, "bad")
		r.expectInAnyOrder("bad got bad", "parent restarting",
			"bad stopping", "bad stopped", "parent saw bad terminated",
			"innocent stopping", "innocent stopped", "parent saw innocent terminated", "parent started")
		r.stop(parent)
		r.expect("parent stopping", "parent stopped")
	})
}

func TestHandleFailurePanicStopsTheParentWhereItsOwnParentStopsFailures(t *testing.T) {
	inBubble(t, func(r *rig) {
		var child *actor.PID
		grandparent := r.spawn(r.system.Root, "grandparent", onStarted(func(ctx actor.Context) {
			r.spawn(ctx, "parent", onStarted(func(ctx actor.Context) {
				child = r.spawn(ctx, "child", panicAt("bad"))
			}), panickyStrategy())
		}), stopEveryFailure())
		r.expect("grandparent started", "parent started", "child started")
		r.send(child, "bad")
		r.expect("child got bad", "parent stopping", "child stopping", "child stopped",
			"parent saw child terminated", "parent stopped", "grandparent saw parent terminated")
		r.stop(grandparent)
		r.expect("grandparent stopping", "grandparent stopped")
	})
}

func TestActorWithoutParentIsSupervisedByTheDefaultStrategy(t *testing.T) {
	inBubble(t, func(r *rig) {
		pid := r.spawn(r.system.Root, "top", panicAt("bad"), stopEveryFailure())
		r.send(pid, "bad")
		r.expect("top started", "top got bad", "top restarting", "top started")
		r.stop(pid)
		r.expect("top stopping", "top stopped")
	})
}
