package ownership

import (
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

const defaultConfirm = 300 * time.Millisecond

// DeathWatch tells which nodes died, by their session locks: every node holds one, and the server drops it when the
// node's process dies. A lock that is missing alone proves nothing, as after a restart of the server all are. So the
// watch has to have seen it, and to miss it in two looks, and no heartbeat may have come in between: who lost its lock and
// goes on, as behind a pooler, is judged by its heartbeat alone until the lock is seen again.
//
// A watch is good for one unbroken session: whoever loses the session in which it looks makes a new watch. It is pure.
type DeathWatch struct {
	confirm time.Duration
	// seen holds the peers of the last look whose lock was seen, and what it misses of them: nothing while it is held.
	seen map[string]missing
}

// missing is since when a lock is missing, and what the last heartbeat was then.
type missing struct{ since, beat time.Time }

// NewDeathWatch takes how far apart two looks have to be that miss a lock; 0 or less means 300 ms.
func NewDeathWatch(confirm time.Duration) *DeathWatch {
	if confirm <= 0 {
		confirm = defaultConfirm
	}
	return &DeathWatch{confirm: confirm}
}

// Look takes in a look at the peers. It returns those that are dead, in the order in which they are listed, and after how
// long to look again to be sure of others: 0 means at the usual time.
//
// A dead peer is reported at each look until it is not listed or locked again, or has sent a heartbeat. One that is not
// listed is forgotten: if it comes back, its lock has to be seen first. Where a peer is listed twice, one lock is enough.
// The time of looks must not go back; where it does, the wait for what is missing begins anew.
func (w *DeathWatch) Look(now time.Time, peers []engine.Peer) (dead []string, again time.Duration) {
	locked := make(map[string]bool, len(peers))
	for _, p := range peers {
		locked[p.ID] = locked[p.ID] || p.Locked
	}
	seen := make(map[string]missing, len(locked))
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
		} else if again == 0 || left < again {
			again = left
		}
	}
	w.seen = seen
	return dead, again
}
