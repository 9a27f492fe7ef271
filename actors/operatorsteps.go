package actors

import "time"

// searching is the operatorStep of the search for operations. Operations have the numbers from 1.
const searching = 0

// operatorStep is a step of the operator, which the watchdog checks.
type operatorStep struct {
	began time.Time
	limit time.Duration
}

// operatorStep records that a step of an operation began, and how long it may take. A limit of 0 ends the step.
func (r *Registry) operatorStep(operation int64, limit time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if limit == 0 {
		delete(r.operatorSteps, operation)
		return
	}
	r.operatorSteps[operation] = operatorStep{time.Now(), limit}
}

// operatorStopped forgets the steps of an operator that has stopped.
func (r *Registry) operatorStopped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.operatorSteps)
}

// OperatorLate returns by how much the operator's slowest step exceeds its limit, 0 if none does.
func (r *Registry) OperatorLate() (late time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, step := range r.operatorSteps {
		late = max(late, time.Since(step.began)-step.limit)
	}
	return late
}
