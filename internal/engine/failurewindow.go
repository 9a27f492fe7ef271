package engine

import "math/bits"

const (
	// recentMost is how many of the last events FailureWindow looks back on: few enough that a bug which begins after months of
	// success is noticed within as many events, more than enough to tell a share.
	recentMost = 100
	// recentLeast is how many events must have failed among them before a share means anything. With fewer, one bad
	// stream at the very beginning would stop a projection.
	recentLeast = 20
)

// FailureWindow remembers which of the last 100 events of a projection were handled and which were parked or skipped. Where too
// many fail, it is no poison but a bug or something that is missing, and the projection had better stop than fill the
// dead letters. It begins anew with each owner of the lease, and whenever somebody resumes the projection after it failed.
// It is pure, and its zero value remembers nothing.
type FailureWindow struct {
	// failures has a bit for each event, set where it failed, the latest lowest: 64 of them in low, the rest in high.
	high, low uint64
	seen      int
}

// Handled takes in that n events were handled.
func (r *FailureWindow) Handled(n int) {
	for range min(n, recentMost) {
		r.add(0)
	}
}

// Failed takes in that an event was parked or skipped.
func (r *FailureWindow) Failed() { r.add(1) }

func (r *FailureWindow) add(bit uint64) {
	r.high = (r.high<<1 | r.low>>63) & (1<<(recentMost-64) - 1)
	r.low = r.low<<1 | bit
	r.seen = min(r.seen+1, recentMost)
}

// Share returns how many of how many recent events failed.
func (r FailureWindow) Share() (failed, of int) {
	return bits.OnesCount64(r.high) + bits.OnesCount64(r.low), r.seen
}

// TooMany tells whether one more event that fails would be too many: at least 20 then failed, and they are more than most
// of all that is remembered. A negative most allows all. The event is not taken in.
func (r FailureWindow) TooMany(most float64) (failed, of int, tooMany bool) {
	r.add(1)
	failed, of = r.Share()
	return failed, of, most >= 0 && failed >= recentLeast && float64(failed) > most*float64(of)
}
