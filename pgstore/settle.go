package pgstore

import (
	"slices"
	"strings"
)

// settling decides how far a tenant's events are settled: up to which position no event can still appear. It is pure;
// tail reads, scans and waits for it.
//
// A position that is missing below a visible one was either rolled back or belongs to an append in flight. Who appends
// holds ROW EXCLUSIVE on the events table from before it draws its number until after its commit is visible. So once a
// target, the position of a visible row, is known, the transactions that hold the lock are noted; when none of them
// holds it any more and the events are read again after that, whatever is still missing at or below the target will
// never appear.
type settling struct {
	// mark: everything at or below it is settled.
	mark int64
	// target is the position that is being settled; 0 while there is no gap.
	target int64
	// holders are the noted transactions that still hold the lock; nil before the first scan for this target.
	holders map[string]bool
	// joined are the restored prepared transactions that were added to holders while waiting. Each joins once.
	joined map[string]bool
	// cleared tells that none of the holders is left: the next read decides.
	cleared bool
}

// settleFrom starts at a mark that is known to be settled and a head that has yet to be, the highest visible position.
func settleFrom(mark, head int64) settling {
	s := settling{mark: mark}
	if head > mark {
		s.target = head
	}
	return s
}

// waiting tells whether there is a gap below a visible position.
func (s *settling) waiting() bool { return s.target != 0 }

// read takes in what a read found beyond the mark: the visible positions, ascending. complete tells that there were no
// more of them than these. It returns how many of positions are settled now.
func (s *settling) read(positions []int64, complete bool) (settled int) {
	settled = s.extend(positions, 0)
	if s.cleared && s.mark < s.target {
		// Nothing can appear at or below the target any more, and this read came after that was so.
		for settled < len(positions) && positions[settled] <= s.target {
			s.mark = positions[settled]
			settled++
		}
		if complete || settled < len(positions) {
			s.mark = s.target
		}
	}
	if s.mark >= s.target {
		s.done()
		settled = s.extend(positions, settled)
	}
	if s.target == 0 && settled < len(positions) {
		s.target = positions[len(positions)-1]
	}
	return settled
}

// extend moves the mark over the positions from i on that follow it without a gap.
func (s *settling) extend(positions []int64, i int) int {
	for i < len(positions) && positions[i] == s.mark+1 {
		s.mark++
		i++
	}
	return i
}

// jump moves the mark to the target without a read of what lies between, for the start, when the caller asks only
// where the end is. It may be called when cleared.
func (s *settling) jump() {
	s.mark = s.target
	s.done()
}

func (s *settling) done() {
	s.target, s.holders, s.joined, s.cleared = 0, nil, nil, false
}

// scanned takes in who holds the lock now. The scan must have begun after the target was seen.
func (s *settling) scanned(now []string) {
	if s.target == 0 {
		return
	}
	if s.holders == nil {
		s.holders = make(map[string]bool, len(now))
		for _, h := range now {
			s.holders[h] = true
		}
	} else {
		for h := range s.holders {
			if !slices.Contains(now, h) {
				delete(s.holders, h)
			}
		}
		for _, h := range now {
			// A prepared transaction loses its name to -1/xid when the server restarts. One that is first seen now may
			// be one of the noted ones.
			if strings.HasPrefix(h, restoredPrefix) && !s.holders[h] && !s.joined[h] {
				if s.joined == nil {
					s.joined = make(map[string]bool)
				}
				s.joined[h], s.holders[h] = true, true
			}
		}
	}
	s.cleared = len(s.holders) == 0
}

// restoredPrefix begins the virtual transaction id of a prepared transaction that a server restart restored.
const restoredPrefix = "-1/"
