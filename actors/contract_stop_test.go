package actors_test

import (
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

func TestStoppingPanicResurrects(t *testing.T) {
	inBubble(t, func(r *rig) {
		parent, child := r.family(panicOn[*actor.Stopping])
		r.stop(child)
		r.expect("child stopping", "child restarting", "child started")
		r.send(child, "hello")
		r.expect("child got hello")

		r.stop(parent)
		r.expect("parent stopping", "child stopping", "child restarting", "child started")
	})
}

// A second stop does not help: a stop is ignored while the child is stopping.
func TestStoppingPanicUnderAStoppingStrategyNeverStops(t *testing.T) {
	inBubble(t, func(r *rig) {
		parent, child := r.family(panicOn[*actor.Stopping], stopEveryFailure())
		r.stop(child)
		r.expect("child stopping")
		r.stop(child)
		r.stop(parent)
		r.expect("parent stopping")
	})
}

func TestStoppedPanicHangsTheParentsStop(t *testing.T) {
	for name, opts := range map[string][]actor.PropsOption{
		"under the default strategy": nil,
		"under a stopping strategy":  {stopEveryFailure()},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				parent, child := r.family(panicOn[*actor.Stopped], opts...)
				r.stop(child)
				r.expect("child stopping", "child stopped")
				r.stop(parent)
				r.expect("parent stopping")
				<-time.After(outlastTimers)
				r.expect()
			})
		})
	}
}

func TestLateRestartResurrectsAStoppingActor(t *testing.T) {
	inBubble(t, func(r *rig) {
		gate := make(chan struct{})
		var supervisor actor.Supervisor
		_, child := r.family(all(panicAt("bad"), func(ctx actor.Context) {
			if ctx.Message() == any("beget") {
				r.spawn(ctx, "grandchild", holdOn[*actor.Stopping](gate))
			}
		}),
			actor.WithSupervisor(strategyFunc(func(s actor.Supervisor, _ *actor.PID, _ *actor.RestartStatistics,
				_ any) {
				supervisor = s
			})))
		r.send(child, "beget")
		r.expect("child got beget", "grandchild started")
		r.send(child, "bad")
		r.expect("child got bad")

		r.stop(child)
		r.expect("child stopping", "grandchild stopping")
		supervisor.RestartChildren(child)
		r.expect("child restarting")
		close(gate)
		r.expect("grandchild stopped", "child saw grandchild terminated", "child started")
	})
}

func TestTerminatedComesAfterStoppedWasHandled(t *testing.T) {
	inBubble(t, func(r *rig) {
		gate := make(chan struct{})
		_, child := r.family(holdOn[*actor.Stopped](gate))
		r.stop(child)
		r.expect("child stopping", "child stopped")
		close(gate)
		r.expect("parent saw child terminated")
	})
}

func TestParentThatWatchesItsChildSeesTerminatedTwice(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.spawn(r.system.Root, "parent", onStarted(func(ctx actor.Context) {
			child := r.spawn(ctx, "child", nil)
			ctx.Watch(child)
			ctx.Stop(child)
		}))
		r.expect("parent started", "child started", "child stopping", "child stopped",
			"parent saw child terminated", "parent saw child terminated")
	})
}

// A name is free before Stopped is handled. A parent that uses it before it has seen Terminated loses the new child:
// the Terminated of the old child, which has the same name, removes it.
func TestNameTakenAgainBeforeTerminatedOrphansTheNewChild(t *testing.T) {
	inBubble(t, func(r *rig) {
		gate := make(chan struct{})
		var second *actor.PID
		parent := r.spawn(r.system.Root, "parent", func(ctx actor.Context) {
			switch ctx.Message() {
			case any("stop child"):
				ctx.Stop(ctx.Children()[0])
			case any("respawn"):
				second = r.spawn(ctx, "child", nil)
			}
			onStarted(func(ctx actor.Context) { r.spawn(ctx, "child", holdOn[*actor.Stopped](gate)) })(ctx)
		})
		r.send(parent, "stop child")
		synctest.Wait()
		r.take()

		r.send(parent, "respawn")
		r.expect("parent got respawn", "child started")
		if second == nil {
			t.Fatal("no second child")
		}
		close(gate)
		r.expect("parent saw child terminated")
		r.stop(parent)
		r.expect("parent stopping", "parent stopped")
		r.send(second, "still here")
		r.expect("child got still here")
		r.stop(second)
		r.expect("child stopping", "child stopped")
	})
}

// User messages arrive after Stopping, so a timer's message can make a parent respawn a child after it stopped its
// children. The new child is not stopped.
func TestChildSpawnedAfterStoppingHangsTheStop(t *testing.T) {
	inBubble(t, func(r *rig) {
		gate := make(chan struct{})
		var second *actor.PID
		parent := r.spawn(r.system.Root, "parent", func(ctx actor.Context) {
			switch ctx.Message().(type) {
			case *actor.Started:
				r.spawn(ctx, "first", holdOn[*actor.Stopping](gate))
			case string:
				second = r.spawn(ctx, "second", nil)
			}
		})
		r.expect("parent started", "first started")
		r.stop(parent)
		r.expect("parent stopping", "first stopping")
		r.send(parent, "respawn")
		r.expect("parent got respawn", "second started")
		if second == nil {
			t.Fatal("no second child")
		}
		close(gate)
		r.expect("first stopped", "parent saw first terminated")
		r.stop(parent)
		r.expect()

		r.stop(second)
		r.expect("second stopping", "second stopped", "parent saw second terminated", "parent stopped")
	})
}

func TestUserMessagesArriveAfterStopping(t *testing.T) {
	inBubble(t, func(r *rig) {
		gate := make(chan struct{})
		parent, _ := r.family(holdOn[*actor.Stopping](gate))
		r.stop(parent)
		r.expect("parent stopping", "child stopping")
		r.send(parent, "late")
		r.expect("parent got late")
		close(gate)
		r.expect("child stopped", "parent saw child terminated", "parent stopped")
	})
}

func TestMessagesQueuedAtStopVanishWithoutDeadLetter(t *testing.T) {
	inBubble(t, func(r *rig) {
		gate := make(chan struct{})
		pid := r.spawn(r.system.Root, "actor", holdAt("hold", gate))
		r.send(pid, "hold", "queued", "queued too")
		synctest.Wait()
		r.stop(pid)
		r.send(pid, "sent after the stop")
		close(gate)
		r.expect("actor started", "actor got hold", "actor stopping", "actor stopped")

		r.send(pid, "sent to the stopped")
		r.expect("undelivered sent to the stopped")
	})
}

func TestOneSendersMessagesKeepTheirOrder(t *testing.T) {
	const senders, each = 4, 1_000
	inBubble(t, func(r *rig) {
		type numbered struct{ sender, number int }
		var next [senders]int
		pid := r.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			if m, ok := ctx.Message().(numbered); ok {
				if next[m.sender] != m.number {
					t.Errorf("sender %d: got message %d, want %d", m.sender, m.number, next[m.sender])
				}
				next[m.sender] = m.number + 1
			}
		}, actor.WithMailbox(actor.UnboundedLockfree())))
		for sender := range senders {
			go func() {
				for number := range each {
					r.system.Root.Send(pid, numbered{sender, number})
				}
			}()
		}
		synctest.Wait()
		for sender, got := range next {
			if got != each {
				t.Errorf("sender %d: %d messages arrived, want %d", sender, got, each)
			}
		}
		r.stop(pid)
		synctest.Wait()
	})
}

func TestSystemMessagesOvertakeUserMessages(t *testing.T) {
	inBubble(t, func(r *rig) {
		gate := make(chan struct{})
		var child *actor.PID
		parent := r.spawn(r.system.Root, "parent", all(holdAt("hold", gate), onStarted(func(ctx actor.Context) {
			child = r.spawn(ctx, "child", nil)
		})))
		r.expect("parent started", "child started")
		r.send(parent, "hold", "sent before the child ended")
		r.expect("parent got hold")
		r.stop(child)
		r.expect("child stopping", "child stopped")
		close(gate)
		r.expect("parent saw child terminated", "parent got sent before the child ended")
		r.stop(parent)
		r.expect("parent stopping", "parent stopped")
	})
}

func TestStopFutureGivesUpAfterTenSeconds(t *testing.T) {
	inBubble(t, func(r *rig) {
		gate := make(chan struct{})
		pid := r.spawn(r.system.Root, "actor", holdOn[*actor.Stopping](gate))
		begin := time.Now()
		err := r.system.Root.StopFuture(pid).Wait()
		if waited := time.Since(begin); !errors.Is(err, actor.ErrTimeout) || waited != 10*time.Second {
			t.Errorf("StopFuture ended after %v with %v, want a time-out after 10s", waited, err)
		}
		r.expect("actor started", "actor stopping")
		close(gate)
		r.expect("actor stopped")
	})
}

func TestSecondWaiterOfAFutureHangs(t *testing.T) {
	inBubble(t, func(r *rig) {
		future := actor.NewFuture(r.system, time.Second)
		for range 2 {
			go func() {
				_ = future.Wait()
				r.note("woken")
			}()
		}
		<-time.After(outlastTimers)
		r.expect("woken")

		cond := (*sync.Cond)(reflect.ValueOf(future).Elem().FieldByName("cond").UnsafePointer())
		cond.Broadcast()
		r.expect("woken")
	})
}

func TestReenterAfterRunsTheOldInstancesClosure(t *testing.T) {
	inBubble(t, func(r *rig) {
		answer := actor.NewFuture(r.system, time.Hour)
		var instances int
		pid := r.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
			instances++
			mine := instances
			return actor.ReceiveFunc(func(ctx actor.Context) {
				switch ctx.Message() {
				case any("ask"):
					ctx.ReenterAfter(answer, func(any, error) {
						if mine != instances {
							r.note("closure of an earlier instance")
						}
					})
				case any("bad"):
					panic("boom")
				}
			})
		}))
		r.send(pid, "ask", "bad")
		synctest.Wait()
		r.system.Root.Send(answer.PID(), "answer")
		r.expect("closure of an earlier instance")
		r.stop(pid)
		synctest.Wait()
	})
}
