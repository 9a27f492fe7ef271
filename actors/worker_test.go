package actors

import (
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
)

// A store waits for half of Timeout before it calls the handler, which then has all of Timeout: for the batch of a
// projection that keeps itself apart, for that of its rival, and for a replay.
func TestEveryAttemptHasTimeToWaitForAnotherBatch(t *testing.T) {
	w := &worker{deps: &Deps{Timing: Timing{QueryTimeout: time.Second}}, def: &engine.Definition{Timeout: time.Hour}}
	for name, job := range map[string]machine.Job{
		"batch": machine.Apply{}, "batch that is kept apart": machine.Apply{Run: machine.BatchRun{Apart: []int32{7}}},
		"replay": machine.Command{},
	} {
		if limit := w.task(job, engine.Lease{}).limit; limit < 90*time.Minute {
			t.Errorf("%s: limit %v", name, limit)
		}
	}
}
