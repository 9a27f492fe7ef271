package engine

import "math/bits"

const (
	// windowSize is how many events FailureWindow remembers: few enough that a bug which begins after months of success
	// is noticed within as many events, and enough for a share to mean something.
	windowSize = 100
	// minFailures is how many of them must have failed before their share counts. With fewer, one bad stream at the
	// very beginning would stop a projection.
	minFailures = 20
)

// FailureWindow remembers which of the last 100 events of a projection were handled and which were parked or skipped.
// If too many failed, the cause is not a single event but a bug or an outage, and the projection stops before it fills
// the dead letters. The window starts again empty with each owner of the lease, and when a user resumes the projection.
// The zero value is an empty window.
type FailureWindow struct {
	// high and low have a bit for each event, set if it failed. The latest is the lowest bit of low.
	high, low uint64
	seen      int
}

// Handled records that n events were handled.
func (r *FailureWindow) Handled(n int) {
	for range min(n, windowSize) {
		r.add(0)
	}
}

// Failed records that an event was parked or skipped.
func (r *FailureWindow) Failed() { r.add(1) }

func (r *FailureWindow) add(bit uint64) {
	r.high = (r.high<<1 | r.low>>63) & (1<<(windowSize-64) - 1)
	r.low = r.low<<1 | bit
	r.seen = min(r.seen+1, windowSize)
}

// Share returns how many of how many recent events failed.
func (r FailureWindow) Share() (failed, of int) {
	return bits.OnesCount64(r.high) + bits.OnesCount64(r.low), r.seen
}

// TooMany reports whether one more failed event would be too many: at least 20 failed with it, and their share is above
// most. A negative most allows all. The window does not change.
func (r FailureWindow) TooMany(most float64) (failed, of int, tooMany bool) {
	r.add(1)
	failed, of = r.Share()
	return failed, of, most >= 0 && failed >= minFailures && float64(failed) > most*float64(of)
}
