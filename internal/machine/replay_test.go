package machine

import (
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
)

func TestReplayWithoutOutcomeIsFailedAfterTen(t *testing.T) {
	def := &engine.Definition{}
	for _, test := range []struct {
		failed int
		fault  faults.Fault
		ends   bool
	}{
		{9, faults.Fault{Class: faults.Infrastructure}, false},
		{10, faults.Fault{Class: faults.Infrastructure}, true},
		{99, faults.Fault{Class: faults.Unclear, Unreachable: true}, false},
		{99, faults.Fault{Class: faults.LeaseLost}, false},
	} {
		r := CommandRun{def: def, queue: ReplayQueue{Undone: int32(test.failed)}}
		_, step := r.Applied(&test.fault, false, time.Unix(0, 0))
		if end, ends := step.(RecordFailedReplay); ends != test.ends || end.Attempt != 0 {
			t.Errorf("%+v: %T %+v", test, step, step)
		}
	}
}

func TestCheckpointThatMovesBackPanics(t *testing.T) {
	ends := func(to int64) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		m := New(&Config{Def: &engine.Definition{MaxEvents: 1}}, engine.Lease{Checkpoint: 5})
		m.State = Working{Op: 1, Job: Apply{}, Back: Idle{}}
		m.Step(Done{Op: 1, Result: RunResult{End: RunApplied, Batch: engine.Batch{To: to}}}, time.Unix(0, 0))
		return false
	}
	if !ends(4) || ends(5) || ends(6) {
		t.Error("not exactly a lower checkpoint is refused")
	}
}
