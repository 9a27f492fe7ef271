package millrace

import "github.com/millrace-go/millrace/internal/engine"

// SetFaultLimits changes how long faults that may be an event's own are not counted, for the projections registered so far.
func (r *Runtime) SetFaultLimits(limits engine.FaultLimits) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, def := range r.definitions {
		def.Faults = limits.WithDefaults()
	}
}
