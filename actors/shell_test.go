package actors_test

import (
	"errors"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace/actors"
)

// scripted is a behaviour that calls the functions that it gets, and reports everything else.
type scripted struct {
	seen   chan any
	onStop func()
}

func (b *scripted) Start(actor.Context) { b.seen <- "start" }

func (b *scripted) Handle(_ actor.Context, msg any) {
	if fn, ok := msg.(func()); ok {
		fn()
		return
	}
	b.seen <- msg
}

func (b *scripted) Stop(actor.Context) {
	b.seen <- "stop"
	if b.onStop != nil {
		b.onStop()
	}
}

func (b *scripted) Gone(actor.Context) { b.seen <- "gone" }

// failures is a strategy that stops a failed actor and reports the reason.
type failures struct{ reasons chan any }

func (f *failures) HandleFailure(_ *actor.ActorSystem, s actor.Supervisor, pid *actor.PID, _ *actor.RestartStatistics,
	reason, _ any) {
	f.reasons <- reason
	s.StopChildren(pid)
}

func spawn(t *testing.T, b *scripted) (*actor.ActorSystem, *actor.PID, *failures, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	system := actors.NewSystem(zap.New(core))
	strategy := &failures{reasons: make(chan any, 10)}
	pid, err := system.Root.SpawnNamed(actors.Props(zap.New(core), b, actor.WithGuardian(strategy)), "scripted")
	if err != nil {
		t.Fatal(err)
	}
	return system, pid, strategy, logs
}

func expect(t *testing.T, from chan any, want any) {
	t.Helper()
	select {
	case got := <-from:
		if got != want {
			t.Fatalf("got %v, want %v", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("%v did not come", want)
	}
}

func TestPanicGoesToTheSupervisorOnceWithItsStack(t *testing.T) {
	b := &scripted{seen: make(chan any, 10)}
	system, pid, strategy, _ := spawn(t, b)
	expect(t, b.seen, "start")
	system.Root.Send(pid, func() { panic("broken") })
	reason := <-strategy.reasons
	var crash *actors.Crash
	if err, ok := reason.(error); !ok || !errors.As(err, &crash) || crash.Value != "broken" || crash.Stack == "" {
		t.Errorf("reason %v", reason)
	}
	expect(t, b.seen, "stop")
	expect(t, b.seen, "gone")
	if len(strategy.reasons) > 0 {
		t.Error("the supervisor got it twice")
	}
}

func TestPanicWhileStoppingNeitherResurrectsNorHangs(t *testing.T) {
	b := &scripted{seen: make(chan any, 10), onStop: func() { panic("broken") }}
	system, pid, strategy, logs := spawn(t, b)
	expect(t, b.seen, "start")
	system.Root.Stop(pid)
	expect(t, b.seen, "stop")
	expect(t, b.seen, "gone")
	if len(strategy.reasons) > 0 {
		t.Error("the panic went to the supervisor")
	}
	if logs.FilterMessage("actor panicked while stopping").Len() != 1 {
		t.Error("the panic was not logged")
	}
}

func TestMessageAfterStoppingIsDropped(t *testing.T) {
	b := &scripted{seen: make(chan any, 10)}
	system, pid, _, _ := spawn(t, b)
	expect(t, b.seen, "start")
	// The stop overtakes the message.
	b.onStop = func() { system.Root.Send(pid, "late") }
	system.Root.Stop(pid)
	expect(t, b.seen, "stop")
	expect(t, b.seen, "gone")
	select {
	case got := <-b.seen:
		t.Errorf("%v came after the stop", got)
	case <-time.After(50 * time.Millisecond):
	}
}
