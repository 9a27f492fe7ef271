package engine

import "time"

const (
	// uncountedFaults is how many Unclear faults an event meets alone before they count. With fewer, an event could be blamed
	// for a server that recovers from a backend's crash, or for a pooler that restarts. With more, an event that harms the
	// server would harm it more often.
	uncountedFaults = 10
	// uncountedFor is how long they must last. The faults of a passing shortage, say of memory, come in quick succession:
	// ten of them take some 20 s with the delays between them.
	uncountedFor = time.Minute
	// waitForObjects is the default of Projection.MissingObjectTimeout: long enough for the migrations of a deployment.
	waitForObjects = 5 * time.Minute
)

// FaultLimits says how long faults that may be an event's own are not counted against it. The zero value means the defaults.
type FaultLimits struct {
	// Faults and Over are how many Unclear faults an event meets alone, and for how long at least, before they count.
	// Defaults 10 and 1 min.
	Faults int
	Over   time.Duration
	// MissingObject is how long an event waits for a missing object or privilege. Default 5 min; negative means not at all.
	MissingObject time.Duration
}

// WithDefaults returns l with the defaults in place of zeros.
func (l FaultLimits) WithDefaults() FaultLimits {
	if l.Faults == 0 {
		l.Faults = uncountedFaults
	}
	if l.Over == 0 {
		l.Over = uncountedFor
	}
	if l.MissingObject == 0 {
		l.MissingObject = waitForObjects
	}
	return l
}
