package actors

import (
	"sync"
	"time"
)

// searching is the number of the step of the search for operations. Operations have the numbers from 1.
const searching = 0

// operatorSteps are the steps in progress of the operator, by operation. The watchdog checks them.
type operatorSteps struct {
	mu    sync.Mutex
	steps map[int64]operatorStep
}

type operatorStep struct {
	began time.Time
	limit time.Duration
}

// begin records that a step of an operation began, and how long it may take.
func (o *operatorSteps) begin(operation int64, limit time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.steps == nil {
		o.steps = make(map[int64]operatorStep)
	}
	o.steps[operation] = operatorStep{time.Now(), limit}
}

// end records that the step of an operation has ended.
func (o *operatorSteps) end(operation int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.steps, operation)
}

// forget forgets the steps of an operator that has stopped.
func (o *operatorSteps) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.steps)
}

// late returns by how much the slowest step exceeds its limit, 0 if none does.
func (o *operatorSteps) late() (late time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, step := range o.steps {
		late = max(late, time.Since(step.began)-step.limit)
	}
	return late
}

// OperatorLate returns by how much the operator's slowest step exceeds its limit, 0 if none does.
func (r *Registry) OperatorLate() time.Duration { return r.operator.late() }
