// Package settle decides how far a tenant's events are settled: up to which position no event can still appear. It is
// pure code. The tail of pgstore reads events and scans locks for it.
//
// A position that is missing below a visible one was either rolled back or belongs to an append in flight. An append
// holds ROW EXCLUSIVE on the events table from before it draws its number until after its commit is visible. So the
// settler takes the position of a visible row as its target, and then notes the transactions that hold the lock. When
// none of them holds it any more, and the events are read again after that, what is still missing at or below the
// target will never appear.
package settle

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// grace is how long a gap may take to close by itself before locks are scanned. Nearly all gaps do.
	grace = 4 * time.Millisecond
	// maxWait is the longest time between two scans for an append that stays open.
	maxWait = 250 * time.Millisecond
	// restoredPrefix begins the virtual transaction id of a prepared transaction that a server restart restored.
	restoredPrefix = "-1/"
)

// Holder is a transaction that holds ROW EXCLUSIVE on a tenant's events.
type Holder struct {
	// Transaction is the virtual transaction id.
	Transaction string
	// PID is the backend, 0 for a prepared transaction.
	PID int32
}

// String names the transaction as an operator finds it in pg_locks.
func (h Holder) String() string {
	if h.PID == 0 {
		return "prepared transaction " + h.Transaction
	}
	return fmt.Sprintf("backend %d", h.PID)
}

// Settler follows the settled mark of one tenant within one incarnation of the server.
type Settler struct {
	// mark is the settled mark.
	mark int64
	// head is the highest position that was visible at the start. The caller needs no events up to it.
	head int64
	// target is the position that is being settled; 0 while there is no gap.
	target int64
	// seen is when the target was first seen, and scans counts the lock scans for it.
	seen  time.Time
	scans int
	// holders are the noted transactions that still hold the lock; nil before the first scan for this target.
	holders map[string]Holder
	// joined are the restored prepared transactions that were added to holders while waiting. Each joins once.
	joined map[string]bool
	// cleared reports whether none of the holders is left, so that the next read decides.
	cleared bool
}

// New returns a Settler that starts at a settled mark and at head, the highest visible position, which may not be
// settled.
func New(mark, head int64, now time.Time) Settler {
	s := Settler{mark: mark, head: head}
	if head > mark {
		s.target, s.seen = head, now
	}
	return s
}

// Mark returns the settled mark.
func (s *Settler) Mark() int64 { return s.mark }

// Waiting reports whether there is a gap below a visible position.
func (s *Settler) Waiting() bool { return s.target != 0 }

// Cleared reports whether the next read decides about the gap.
func (s *Settler) Cleared() bool { return s.cleared }

// Scanned reports whether the lock holders of the gap are known.
func (s *Settler) Scanned() bool { return s.scans > 0 }

// ScanDue reports whether the locks should be scanned for the first time, because the gap did not close by itself.
func (s *Settler) ScanDue(now time.Time) bool {
	return s.Waiting() && s.scans == 0 && now.Sub(s.seen) >= grace
}

// Wait returns how long to wait before the next read or scan for the gap.
func (s *Settler) Wait(now time.Time) time.Duration {
	if s.scans == 0 {
		return max(time.Millisecond, grace-now.Sub(s.seen))
	}
	return min(maxWait, grace<<min(s.scans, 10))
}

// Held returns the visible position above the gap, when it was first seen, and the transactions that hold the mark
// back.
func (s *Settler) Held() (below int64, since time.Time, holders []string) {
	for _, h := range s.holders {
		holders = append(holders, h.String())
	}
	slices.Sort(holders)
	return s.target, s.seen, holders
}

// Read records the visible positions beyond the mark, ascending. complete reports whether these are all. Read returns
// how many of them are settled now.
func (s *Settler) Read(positions []int64, complete bool, now time.Time) (settled int) {
	settled = s.extend(positions, 0)
	if s.cleared {
		// Nothing can appear at or below the target any more, and this read began after that was so.
		for settled < len(positions) && positions[settled] <= s.target {
			s.mark = positions[settled]
			settled++
		}
		if complete || settled < len(positions) {
			s.mark = max(s.mark, s.target)
		}
	}
	if s.mark >= s.target {
		s.done()
		settled = s.extend(positions, settled)
	}
	if s.target == 0 && settled < len(positions) {
		s.target, s.seen = positions[len(positions)-1], now
	}
	return settled
}

// Take moves the mark over the positions of committed events if they follow it without a gap. Otherwise it changes
// nothing and returns false.
//
// It needs neither a read nor a scan of locks. No two events have the same position, so nothing is or can appear
// between the mark and these positions, or at one of them, whatever transactions are open: each position up to the last
// one is settled or has its event. While a gap is waited for, nothing is taken: what is visible beyond it belongs to
// the read that decides about the gap.
func (s *Settler) Take(positions []int64) bool {
	if s.Waiting() {
		return false
	}
	for i, p := range positions {
		if p != s.mark+1+int64(i) {
			return false
		}
	}
	s.mark += int64(len(positions))
	return true
}

// extend moves the mark over the positions from i on that follow it without a gap.
func (s *Settler) extend(positions []int64, i int) int {
	for i < len(positions) && positions[i] == s.mark+1 {
		s.mark++
		i++
	}
	return i
}

func (s *Settler) done() {
	s.target, s.scans, s.holders, s.joined, s.cleared = 0, 0, nil, nil, false
}

// Scan records the transactions that hold the lock now. The scan must have begun after the target was seen. If it
// settles the head of the start, the mark moves there at once. Scan reports whether a read may find more than before.
func (s *Settler) Scan(now []Holder) (changed bool) {
	if s.target == 0 {
		return false
	}
	s.scans++
	before := len(s.holders)
	if s.holders == nil {
		s.holders = make(map[string]Holder, len(now))
		for _, h := range now {
			s.holders[h.Transaction] = h
		}
	} else {
		s.update(now)
	}
	s.cleared = len(s.holders) == 0
	changed = s.cleared || len(s.holders) != before
	if s.cleared && s.target == s.head {
		s.mark = s.head
		s.done()
	}
	return changed
}

// update drops the holders that are gone, and adds restored prepared transactions.
func (s *Settler) update(now []Holder) {
	left := make(map[string]Holder)
	for _, h := range now {
		_, held := s.holders[h.Transaction]
		if !held && strings.HasPrefix(h.Transaction, restoredPrefix) && !s.joined[h.Transaction] {
			// A restart of the server renames prepared transactions to -1/xid. So this one may have been noted before.
			if s.joined == nil {
				s.joined = make(map[string]bool)
			}
			s.joined[h.Transaction], held = true, true
		}
		if held {
			left[h.Transaction] = h
		}
	}
	s.holders = left
}
