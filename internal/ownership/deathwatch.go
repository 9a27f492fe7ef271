package ownership

import (
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// DeathWatch finds nodes whose process died, by their session locks: the server drops a node's lock when its process
// dies. A missing lock alone proves nothing, since after a restart of the server all are missing. So a node is dead if
// the watch saw its lock before, misses it in two observations, and no heartbeat came in between. A node that lost its
// lock and continues, as behind a pooler, is trusted by its heartbeat alone until its lock is seen again.
//
// A watch is good for one unbroken session. A new session needs a new watch.
type DeathWatch struct {
	confirm time.Duration
	// seen has the peers of the last observation whose lock was seen before.
	seen map[string]missing
}

// missing is since when a lock is missing, and what the last heartbeat was then. It is zero while the lock is held.
type missing struct{ since, beat time.Time }

// NewDeathWatch returns a watch that declares a node dead when its lock is missing in two observations at least confirm
// apart.
func NewDeathWatch(confirm time.Duration) *DeathWatch { return &DeathWatch{confirm: confirm} }

// Observe returns the dead peers, in the order in which they are listed, and how soon to observe again to confirm
// others: 0 means at the usual time.
//
// A dead peer is returned each time until it is not listed any more, is locked again, or has sent a heartbeat. A peer
// that is not listed is forgotten: if it comes back, its lock must be seen first. If a peer is listed twice, one lock
// is enough. If the time goes back, the wait for missing locks begins anew.
func (w *DeathWatch) Observe(now time.Time, peers []engine.Peer) (dead []string, again time.Duration) {
	locked := make(map[string]bool, len(peers))
	for _, p := range peers {
		locked[p.ID] = locked[p.ID] || p.Locked
	}
	seen := make(map[string]missing, len(locked))
	var waits []time.Duration
	for _, p := range peers {
		if _, twice := seen[p.ID]; twice {
			continue
		}
		gone, known := w.seen[p.ID]
		switch {
		case locked[p.ID]:
			seen[p.ID] = missing{}
			continue
		case !known, !gone.since.IsZero() && !gone.beat.Equal(p.Beat):
			continue
		case gone.since.IsZero() || now.Before(gone.since):
			gone = missing{now, p.Beat}
		}
		seen[p.ID] = gone
		if left := w.confirm - now.Sub(gone.since); left <= 0 {
			dead = append(dead, p.ID)
		} else {
			waits = append(waits, left)
		}
	}
	w.seen = seen
	if len(waits) != 0 {
		again = slices.Min(waits)
	}
	return dead, again
}
