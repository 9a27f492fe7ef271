package engine

import (
	"time"

	"github.com/millrace-go/millrace/projection"
)

// Definition is a registered projection as the actors see it. The handler is hidden in Apply, so that no actor knows
// the database driver.
type Definition struct {
	// Types selects events by type; empty means all.
	Types []string
	// MaxEvents, MaxBytes and Timeout are those of millrace.Projection, with their defaults.
	MaxEvents int
	MaxBytes  int
	Timeout   time.Duration
	// Leased reports whether the handler works outside of a transaction.
	Leased bool
	Policy
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
