package engine

import (
	"slices"
	"time"

	"github.com/millrace-go/millrace/projection"
)

// Definition is a registered projection. Its handler is hidden in Apply, so that no actor knows the database driver.
type Definition struct {
	// Types selects events by type; empty means all.
	Types []string
	// Partitions is how many partitions the projection gets for tenants for which it is new.
	Partitions int
	// Tenants selects the tenants of the runtime for which the projection runs.
	Tenants TenantFilter
	// MaxEvents, MaxBytes and Timeout are those of millrace.Projection, with their defaults.
	MaxEvents int
	MaxBytes  int
	Timeout   time.Duration
	// Weight is the projection's share of its tenant's slots. The partitions of a projection share it.
	Weight int
	// Leased reports whether the handler works outside of a transaction.
	Leased bool
	Policy
	Breaker projection.BreakerPolicy
	Faults  FaultLimits
	Apply   Run
}

// Concerns reports whether the projection handles events of that type.
func (d *Definition) Concerns(eventType string) bool {
	return len(d.Types) == 0 || slices.Contains(d.Types, eventType)
}
