package engine

import (
	"time"

	"github.com/millrace-go/millrace/projection"
)

// Definition is a registered projection as the actors see it. The handler is hidden in Apply, so that no actor knows
// the database driver.
type Definition struct {
	Name string
	// Types selects events by type; empty means all.
	Types []string
	// MaxEvents and MaxBytes bound a batch. One event larger than MaxBytes still makes a batch of one.
	MaxEvents int
	MaxBytes  int
	// Deadline bounds one call of the handler.
	Timeout time.Duration
	// Leased tells that the handler works outside of a transaction.
	Leased bool
	// Policy says what becomes of an event that fails.
	Policy
	// Breaker says when the projection waits for what its handler depends on.
	Breaker projection.BreakerPolicy
	// Faults says how long faults that may be an event's own are not counted against it.
	Faults FaultLimits
	// Apply runs one batch.
	Apply Run
}

// Concerns reports whether the projection wants events of that type.
func (d *Definition) Concerns(eventType string) bool {
	if len(d.Types) == 0 {
		return true
	}
	for _, t := range d.Types {
		if t == eventType {
			return true
		}
	}
	return false
}
