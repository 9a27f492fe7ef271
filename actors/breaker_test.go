package actors

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

var errDown = errors.New("the service is down")

// forgetful is a store that keeps no failure.
type forgetful struct {
	*memory
	told   chan projection.Failure
	answer error
}

func (f *forgetful) RecordFailure(_ context.Context, _ engine.Lease, failure projection.Failure) (time.Time, error) {
	f.told <- failure
	return time.Time{}, f.answer
}

func (f *forgetful) Probe(context.Context) error { return nil }

func (f *forgetful) Classify(err error) *engine.Fault {
	var fault *engine.Fault
	if errors.As(err, &fault) {
		return fault
	}
	return &engine.Fault{Class: engine.HandlerFault, Err: err}
}

// dependent is a projection with a breaker that opens at the first failure. Each of its batches, handed out by how many
// events it has, ends as the test says.
type dependent struct {
	*outside
	store   *forgetful
	pid     *actor.PID
	batches chan int
	ends    chan error
}

func depend(t *testing.T, answer error) *dependent {
	o := surround(t)
	d := &dependent{outside: o, store: &forgetful{memory: o.store, told: make(chan projection.Failure, 10), answer: answer},
		batches: make(chan int, 10), ends: make(chan error, 10)}
	o.store.events = envelopes(9)
	o.deps.Store = d.store
	o.def.Breaker = engine.BreakerDefaults(projection.BreakerPolicy{IsOutage: func(err error) bool { return errors.Is(err, errDown) }, Failures: 1})
	o.def.Apply = func(ctx context.Context, _ engine.Lease, batch engine.Batch) error {
		d.batches <- len(batch.Events)
		select {
		case err := <-d.ends:
			return err
		case <-ctx.Done():
			return &engine.Fault{Class: engine.Infrastructure, Err: ctx.Err()}
		}
	}
	d.pid = o.projection()
	d.send(d.pid, &messages.TailAdvanced{Mark: 9, From: 9})
	return d
}

// end lets the batch that is under way, of that many events, end.
func (d *dependent) end(events int, err error) {
	d.t.Helper()
	if got := receive(d.outside, d.batches); got != events {
		d.t.Fatalf("a batch of %d events, want %d", got, events)
	}
	d.ends <- err
}

// reports waits for what the supervisor is told.
func reports[T any](d *dependent) T {
	d.t.Helper()
	for {
		if msg, ok := receive(d.outside, d.heard).(T); ok {
			return msg
		}
	}
}

func TestProbeIsOneEventWhateverTheDatabaseWasTold(t *testing.T) {
	d := depend(t, &engine.Fault{Class: engine.Infrastructure, Err: errors.New("away")})
	for row := 1; row <= 3; row++ {
		if row == 1 {
			d.end(9, errDown)
		} else {
			d.end(1, errDown)
		}
		if told := receive(d.outside, d.store.told); told.Attempt != 0 || told.Event.Position != 1 || !strings.Contains(told.Err.Error(), "circuit breaker open until") {
			t.Errorf("the database was told %+v", told)
		}
		d.eventually("it waits", func() bool {
			e := d.entry()
			return e.State == Waiting && e.Breaker == projection.BreakerOpen && errors.Is(e.Reason, errDown)
		})
		d.send(d.pid, &messages.Resume{})
	}
	// A fault of the infrastructure says nothing of what is outside.
	d.end(1, &engine.Fault{Class: engine.Infrastructure, Err: errors.New("a deadlock")})
	if reports[*messages.Faulted](d); d.entry().Breaker != projection.BreakerHalfOpen {
		t.Errorf("breaker %s", d.entry().Breaker)
	}
	d.send(d.pid, &messages.Resume{})
	d.end(1, nil)
	d.eventually("it is closed", func() bool { return d.entry().Breaker == projection.BreakerClosed })
	d.end(2, nil)
	d.end(4, nil)
	d.end(2, nil)
	d.eventually("it is done", func() bool { e := d.entry(); return e.State == Live && e.Position == 9 })
}

// What a handler depends on may be another PostgreSQL, whose errors look like those of ours. Those of its own batch's connection
// are nothing that a breaker knows of.
func TestBreakerIsAskedAboutWhatTheHandlerMetOnItsOwnWays(t *testing.T) {
	d := depend(t, nil)
	unclear := func(returned bool) error {
		return &engine.Fault{Class: engine.Unclear, Probe: true, Returned: returned, Err: errDown}
	}
	d.end(9, unclear(false))
	d.end(4, unclear(true)) // narrowed
	d.eventually("the breaker is open", func() bool { return d.entry().Breaker == projection.BreakerOpen })
}
