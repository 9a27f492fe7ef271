package resplit

import (
	"cmp"
	"slices"

	"github.com/millrace-go/millrace/internal/partition"
)

// Replay is an open row of a replay, which one partition runs.
type Replay struct {
	ID int64
	// Root is the first row of the replay, which may be this one.
	Root int64
	// Range is the slots of the partition.
	partition.Range
	// Stream is the parked stream that is being replayed, nil for none. If StreamOnly is set, the row replays no other
	// dead letters.
	Stream     *string
	StreamOnly bool
}

// Continuation is a new row by which a replay continues in a new partition.
type Continuation struct {
	Root int64
	// Part is the index of the partition.
	Part int
	// Like is the open row from which this one has its filter and its limit.
	Like int64
	// Stream and StreamOnly are as in Replay.
	Stream     *string
	StreamOnly bool
}

// Continue returns the rows that continue open replays in new partitions with these slots, in the order in which they
// are inserted.
//
// A parked stream that is being replayed continues in the partition that has it. Each row replays one such stream at
// most, and each stream is replayed by one row. So if partitions are joined, further rows replay only their stream. A
// row that has a filter comes before those that replay only a stream.
func Continue(open []Replay, parts []partition.Range) []Continuation {
	open = slices.Clone(open)
	slices.SortFunc(open, func(a, b Replay) int { return cmp.Compare(a.ID, b.ID) })
	var roots []int64
	for _, o := range open {
		roots = append(roots, o.Root)
	}
	slices.Sort(roots)
	var list []Continuation
	for _, root := range slices.Compact(roots) {
		for i, part := range parts {
			list = append(list, continueIn(open, root, i, part)...)
		}
	}
	return list
}

// continueIn returns the rows of one replay in one partition.
func continueIn(open []Replay, root int64, i int, part partition.Range) (list []Continuation) {
	var like *Replay
	var streams []*string
	for _, o := range open {
		if o.Root != root {
			continue
		}
		if overlap(o.Range, part) && (like == nil || like.StreamOnly && !o.StreamOnly) {
			like = &o
		}
		known := func(s *string) bool { return *s == *o.Stream }
		if o.Stream != nil && part.Contains(partition.Slot(*o.Stream)) && !slices.ContainsFunc(streams, known) {
			streams = append(streams, o.Stream)
		}
	}
	if like == nil {
		return nil
	}
	row := Continuation{Root: root, Part: i, Like: like.ID, StreamOnly: like.StreamOnly}
	if len(streams) == 0 {
		return []Continuation{row}
	}
	for n, stream := range streams {
		row.Stream, row.StreamOnly = stream, like.StreamOnly || n > 0
		list = append(list, row)
	}
	return list
}

// Mark makes dead letters of a new partition that the row Before has tried count as tried by the row After. If Stream
// is set, Mark applies to that parked stream instead.
type Mark struct {
	Part          int
	Stream        *string
	Before, After int64
}

// Marks returns the marks of rows that were inserted with these ids. Marks of single streams come first. Parked streams
// without such a mark are marked as dead letters are.
func Marks(open []Replay, list []Continuation, ids []int64) []Mark {
	var streams, others []Mark
	for _, o := range open {
		marked := make(map[int]bool)
		for i, c := range list {
			if c.Root != o.Root {
				continue
			}
			if c.Stream != nil {
				streams = append(streams, Mark{Part: c.Part, Stream: c.Stream, Before: o.ID, After: ids[i]})
			}
			if !marked[c.Part] {
				marked[c.Part] = true
				others = append(others, Mark{Part: c.Part, Before: o.ID, After: ids[i]})
			}
		}
	}
	return append(streams, others...)
}
