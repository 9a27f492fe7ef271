package actors_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// The contract tests record the behaviour of protoactor-go that this code relies on. If one fails after an upgrade, a
// rule of this code can be relaxed or must be reconsidered. Do not make the test pass by changing what it expects.
//
// Each test runs in a synctest bubble: "nothing more happens" is certain there without waiting, and a goroutine that
// stays behind fails the test.

// outlastTimers is longer than any timer that the dependency leaves running: the throttle of dead letters (1 s) and the
// time-out of a future (10 s).
const outlastTimers = time.Minute

// rig is one actor system and the trace of what its actors went through.
type rig struct {
	t      *testing.T
	system *actor.ActorSystem

	mu    sync.Mutex
	trace []string
}

func inBubble(t *testing.T, scenario func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, system: actor.NewActorSystem(silent())}
		r.system.EventStream.Subscribe(func(event any) {
			if e, ok := event.(*actor.DeadLetterEvent); ok {
				if text, ok := e.Message.(string); ok {
					r.note("undelivered " + text)
				}
			}
		})
		defer func() { <-time.After(outlastTimers) }()
		scenario(r)
	})
}

func silent() actor.ConfigOption {
	return actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) })
}

func (r *rig) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace = append(r.trace, what)
}

func (r *rig) take() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	trace := r.trace
	r.trace = nil
	return trace
}

// expect waits until all actors are idle, and compares the whole trace since the last call.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	if got := r.take(); !slices.Equal(got, want) {
		r.t.Errorf("trace:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// expectInAnyOrder is expect for actors that run beside each other.
func (r *rig) expectInAnyOrder(want ...string) {
	r.t.Helper()
	got := r.take()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Errorf("trace, sorted:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// spawn starts an actor that notes each message and then calls hook with it.
func (r *rig) spawn(in actor.SpawnerContext, name string, hook func(actor.Context),
	opts ...actor.PropsOption) *actor.PID {
	pid, err := in.SpawnNamed(r.props(name, hook, opts...), name)
	if err != nil {
		r.t.Errorf("spawn %s: %v", name, err)
	}
	return pid
}

func (r *rig) props(name string, hook func(actor.Context), opts ...actor.PropsOption) *actor.Props {
	return actor.PropsFromFunc(func(ctx actor.Context) {
		switch message := ctx.Message().(type) {
		case string:
			r.note(name + " got " + message)
		case *actor.Terminated:
			r.note(name + " saw " + path.Base(message.Who.Id) + " terminated")
		default:
			r.note(name + " " + strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", message), "*actor.")))
		}
		if hook != nil {
			hook(ctx)
		}
	}, opts...)
}

func (r *rig) send(to *actor.PID, messages ...string) {
	for _, message := range messages {
		r.system.Root.Send(to, message)
	}
}

func (r *rig) stop(pid *actor.PID) { r.system.Root.Stop(pid) }

// panicOn is a hook that panics with "boom" at each message of type M.
func panicOn[M any](ctx actor.Context) {
	if _, ok := ctx.Message().(M); ok {
		panic("boom")
	}
}

// panicAt is a hook that panics with "boom" at the given text.
func panicAt(text string) func(actor.Context) {
	return func(ctx actor.Context) {
		if ctx.Message() == any(text) {
			panic("boom")
		}
	}
}

// holdOn is a hook that blocks in each message of type M until the gate is open.
func holdOn[M any](gate <-chan struct{}) func(actor.Context) {
	return func(ctx actor.Context) {
		if _, ok := ctx.Message().(M); ok {
			<-gate
		}
	}
}

// holdAt is a hook that blocks at the given text until the gate is open.
func holdAt(text string, gate <-chan struct{}) func(actor.Context) {
	return func(ctx actor.Context) {
		if ctx.Message() == any(text) {
			<-gate
		}
	}
}

// onStarted is a hook that calls do when the actor starts, and after each restart.
func onStarted(do func(actor.Context)) func(actor.Context) {
	return func(ctx actor.Context) {
		if _, ok := ctx.Message().(*actor.Started); ok {
			do(ctx)
		}
	}
}

func all(hooks ...func(actor.Context)) func(actor.Context) {
	return func(ctx actor.Context) {
		for _, hook := range hooks {
			hook(ctx)
		}
	}
}

// family spawns a parent with one child, and returns the PIDs of both.
func (r *rig) family(child func(actor.Context), opts ...actor.PropsOption) (parentPID, childPID *actor.PID) {
	parentPID = r.spawn(r.system.Root, "parent", onStarted(func(ctx actor.Context) {
		childPID = r.spawn(ctx, "child", child)
	}), opts...)
	r.expect("parent started", "child started")
	return parentPID, childPID
}

func TestShutdownStopsNoActorAndPanicsTheSecondTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		pid := r.spawn(r.system.Root, "actor", nil)
		r.system.Shutdown()
		r.send(pid, "hello")
		r.expect("actor started", "actor got hello")

		defer func() {
			if recover() == nil {
				t.Error("the second Shutdown did not panic")
			}
			r.stop(pid)
			r.expect("actor stopping", "actor stopped")
		}()
		r.system.Shutdown()
	})
}

func TestTakenNameGivesErrNameExistsAndThePIDOfTheFirst(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := r.spawn(r.system.Root, "name", nil)
		var produced bool
		pid, err := r.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
			produced = true
			return actor.ReceiveFunc(func(actor.Context) { r.note("second runs") })
		}), "name")
		if !errors.Is(err, actor.ErrNameExists) {
			t.Errorf("error %v, want ErrNameExists", err)
		}
		if pid == nil || !pid.Equal(first) {
			t.Fatalf("pid %v, want that of the first, %v", pid, first)
		}
		if !produced {
			t.Error("the producer of the refused actor did not run")
		}
		r.send(pid, "hello")
		r.expect("name started", "name got hello")
	})
}

// A message that comes between registration and RegisterHandlers panics in its sender. What is worse, it leaves the
// mailbox marked as running, so the actor never runs at all.
func TestMessageToAGuessedPIDKillsAHalfMadeActor(t *testing.T) {
	inBubble(t, func(r *rig) {
		pid := r.spawn(r.system.Root, "half", nil, actor.WithOnInit(func(actor.Context) {
			defer func() {
				if recover() == nil {
					t.Error("a message to a half-made actor did not panic")
				}
			}()
			r.send(r.system.NewLocalPID("half"), "early")
		}))
		r.send(pid, "late")
		r.stop(pid)
		r.expect()
	})
}

func TestOnlyTheDefaultLoggerWritesToStandardStreams(t *testing.T) {
	exercise := func(r *rig) {
		pid := r.spawn(r.system.Root, "actor", panicAt("bad"))
		r.send(pid, "bad")
		synctest.Wait()
		r.stop(pid)
		synctest.Wait()
		r.send(pid, "unread")
		<-time.After(outlastTimers)
	}

	streams := captureStandardStreams(t)
	inBubble(t, func(r *rig) {
		r.system = actor.NewActorSystem()
		exercise(r)
	})
	if out := streams(); !strings.Contains(out, "actor system started") || !strings.Contains(out, "DeadLetter") {
		t.Errorf("the default logger no longer prints to stderr, only %q", out)
	}

	streams = captureStandardStreams(t)
	var logged strings.Builder
	inBubble(t, func(r *rig) {
		r.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
			return slog.New(slog.NewTextHandler(&logged, nil))
		}))
		exercise(r)
	})
	if out := streams(); out != "" {
		t.Errorf("with a logger factory, this still reached the standard streams: %q", out)
	}
	for _, want := range []string{"actor system started", "[ACTOR] Recovering", "[DeadLetter]"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("%q did not go to the given logger, which has %q", want, logged.String())
		}
	}
}

// captureStandardStreams sends stdout and stderr to a file. The function that it returns restores them and returns the
// text.
func captureStandardStreams(t *testing.T) func() string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "streams"))
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = file, file
	restore := func() { os.Stdout, os.Stderr = stdout, stderr }
	t.Cleanup(restore)
	return func() string {
		restore()
		defer file.Close()
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

func TestIdleActorsCostNoGoroutineAndLittleMemory(t *testing.T) {
	const actors, bytesEach, strayGoroutines = 10_000, 2 << 10, 100
	inBubble(t, func(r *rig) {
		props := actor.PropsFromFunc(func(actor.Context) {}, actor.WithMailbox(actor.UnboundedLockfree()))
		pids := make([]*actor.PID, actors)
		before, goroutines := heap(), runtime.NumGoroutine()
		for i := range pids {
			pids[i] = r.system.Root.Spawn(props)
		}
		synctest.Wait()

		if more := runtime.NumGoroutine() - goroutines; more > strayGoroutines {
			t.Errorf("%d idle actors keep %d goroutines", actors, more)
		}
		each := (heap() - before) / actors
		t.Logf("%d bytes per idle actor", each)
		if each > bytesEach {
			t.Errorf("%d bytes per idle actor, want less than %d", each, bytesEach)
		}
		for _, pid := range pids {
			r.stop(pid)
		}
		synctest.Wait()
	})
}

// deps.Spawn relies on this: actors share their properties, and the producer returns the actor that is being spawned.
func TestActorIsProducedOnceWhileItIsSpawned(t *testing.T) {
	inBubble(t, func(r *rig) {
		produced := 0
		props := actor.PropsFromProducer(func() actor.Actor {
			produced++
			return actor.ReceiveFunc(func(actor.Context) {})
		})
		pid := r.system.Root.Spawn(props)
		if produced != 1 {
			t.Errorf("produced %d times when Spawn returns, want once", produced)
		}
		synctest.Wait()
		r.stop(pid)
		synctest.Wait()
		if produced != 1 {
			t.Errorf("produced %d times until it has stopped, want once", produced)
		}
	})
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
