package ownership

import "time"

// Heartbeats decides whether a node trusts the heartbeats of other nodes, by how late its own were.
type Heartbeats struct {
	last time.Time
	// trust is when the node may begin to declare other nodes dead because their heartbeats expired.
	trust time.Time
}

// Sent records a heartbeat of this node that was sent at that time, and reports whether the previous one had expired by
// then. The node may have missed something if it had.
func (h *Heartbeats) Sent(at, now time.Time, lease time.Duration) (expired bool) {
	previous := h.last
	h.last = at
	if previous.IsZero() {
		return false
	}
	silent := at.Sub(previous)
	if silent > lease/2 {
		// The cause that delayed this node's heartbeats may have delayed those of the other nodes too.
		h.trust = now.Add(lease)
	}
	return silent > lease
}

// Trusted reports whether a node whose heartbeat expired counts as dead.
func (h *Heartbeats) Trusted(now time.Time) bool { return now.After(h.trust) }
