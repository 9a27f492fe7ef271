package machine

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
)

func TestErrorIsDecidedOnceItIsKnownWhatFollows(t *testing.T) {
	own := errors.New("bad answer")
	fault := &faults.Fault{Err: own}
	failing := Failing{Failure: projection.Failure{Err: own}}
	for name, test := range map[string]struct {
		state State
		phase Phase // empty if it is not decided
	}{
		"waits for an attempt": {RetryWait{Failure: failing.Failure}, Waiting},
		"outage":               {OutageWait{Reason: own}, Waiting},
		"waits at the event":   {EventWait{Reason: own}, Waiting},
		"asks the gate":        {AtGate{Fault: fault}, Waiting},
		"waits after a fault":  {FaultWait{Reason: own}, Waiting},
		"misconfigured":        {Misconfigured{Reason: own}, Failed},
		"halted":               {Halted{Reason: own}, Failed},
		"failing":              {failing, ""},
		"asks":                 {Working{Job: Ask(failing), Back: failing}, ""},
		"notes the outage":     {Working{Job: Note{}, Back: OutageWait{Reason: own}}, ""},
		"idle":                 {Idle{}, ""},
	} {
		m := &Machine{State: test.state}
		if phase, err := m.Decided(); phase != test.phase || errors.Is(err, own) != (test.phase != "") {
			t.Errorf("%s: %s, %v", name, phase, err)
		}
	}
}

func TestRetryWaitKeepsNoEvent(t *testing.T) {
	m := New(&Config{Def: &engine.Definition{}}, engine.Lease{})
	s := &step{Machine: &m, now: time.Now()}
	retry := projection.ActionRetry
	e := event.Envelope{Position: 7, Stream: "s", Type: "t", Body: make([]byte, 1<<20)}
	s.decide(Failing{Failure: projection.Failure{Event: e, Err: errors.New("bad answer")}}, &retry)
	wait, waits := m.State.(RetryWait)
	if left := wait.Failure.Event; !waits || left.Position != 7 || left.Body != nil || left.Stream+left.Type != "" {
		t.Errorf("it keeps %+v in %T", left, m.State)
	}
}
