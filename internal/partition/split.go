package partition

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// Part is one partition as stored: its share, and the position up to which it has handled the events of its share.
type Part struct {
	Share
	Checkpoint int64
}

// Frontier has the position up to which the events of each slot were handled. Its ranges are in order and cover all
// slots. Adjacent ranges have different positions.
type Frontier []Passed

// FrontierOf returns the frontier of a projection's partitions. It returns an error unless each slot is in one of them.
func FrontierOf(parts []Part) (Frontier, error) {
	sorted := slices.Clone(parts)
	for i, p := range sorted {
		sorted[i].Range = p.Slots()
	}
	slices.SortFunc(sorted, func(a, b Part) int { return cmp.Compare(a.From, b.From) })
	var f Frontier
	next := int32(0)
	for _, p := range sorted {
		if p.From != next || p.To <= p.From {
			return nil, fmt.Errorf("a partition with the slots %d to %d follows the slots below %d", p.From, p.To, next)
		}
		for _, passed := range p.Passed {
			if passed.From < next || passed.To <= passed.From || passed.To > p.To {
				return nil,
					fmt.Errorf("the partition with the slots %d to %d has passed the slots %d to %d after those below %d",
						p.From, p.To, passed.From, passed.To, next)
			}
			f = f.add(Range{next, passed.From}, p.Checkpoint)
			f = f.add(passed.Range, max(p.Checkpoint, passed.Position))
			next = passed.To
		}
		f = f.add(Range{next, p.To}, p.Checkpoint)
		next = p.To
	}
	if next != Slots {
		return nil, fmt.Errorf("no partition has the slots from %d", next)
	}
	return f, nil
}

// add appends a range, unless it is empty. It extends the last one if the position is the same.
func (f Frontier) add(r Range, position int64) Frontier {
	last := len(f) - 1
	switch {
	case r.From == r.To:
		return f
	case last >= 0 && f[last].Position == position && f[last].To == r.From:
		f[last].To = r.To
		return f
	}
	return append(f, Passed{Range: r, Position: position})
}

// Split returns n partitions that continue at the frontier, from the first to the last. Each begins at the lowest
// position of its slots. Its share has the events that were handled beyond it, as Passed.
func (f Frontier) Split(n int) []Part {
	parts := make([]Part, max(1, n))
	for i := range parts {
		parts[i] = f.part(RangeOf(i+1, n))
	}
	return parts
}

// part returns the partition with the slots of r.
func (f Frontier) part(r Range) Part {
	var inside Frontier
	first := sort.Search(len(f), func(i int) bool { return f[i].To > r.From })
	for _, piece := range f[first:] {
		if piece.From >= r.To {
			break
		}
		inside = append(inside, Passed{Range{max(piece.From, r.From), min(piece.To, r.To)}, piece.Position})
	}
	part := Part{Share: Share{Range: r}, Checkpoint: inside[0].Position}
	for _, piece := range inside {
		part.Checkpoint = min(part.Checkpoint, piece.Position)
	}
	part.Passed = Share{Passed: inside}.After(part.Checkpoint).Passed
	return part
}
