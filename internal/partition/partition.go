// Package partition divides the streams of a tenant among the partitions of a projection.
package partition

import (
	"crypto/md5"
	"encoding/binary"
	"slices"
	"sort"
)

const (
	// Slots is how many slots there are. Every stream has one of them, from 0 to Slots-1.
	Slots = 1 << 28
	// Most is how many partitions a projection may have.
	Most = 1024
)

// Slot returns the slot of a stream: the first 7 hexadecimal digits of the MD5 of its id in UTF-8. The same in SQL,
// with server encoding UTF8:
//
//	('x' || left(md5(stream_id), 7))::bit(28)::integer
//
// It must never change: stored events have it.
func Slot(stream string) int32 {
	sum := md5.Sum([]byte(stream))
	return int32(binary.BigEndian.Uint32(sum[:4]) >> 4)
}

// Range is the slots with From <= slot < To.
type Range struct{ From, To int32 }

// All is the range of all slots.
var All = Range{0, Slots}

// RangeOf returns the slots of partition i of n, with i from 1 to n. If n is 1, there is only partition 0, with all
// slots.
func RangeOf(i, n int) Range {
	if n <= 1 {
		return All
	}
	return Range{bound(i-1, n), bound(i, n)}
}

// Numbers returns the partitions of a projection that has n of them: 1 to n, or only 0.
func Numbers(n int) []int {
	if n <= 1 {
		return []int{0}
	}
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i + 1
	}
	return numbers
}

// Of returns the partition, of n, that has a slot.
func Of(slot int32, n int) int {
	if n <= 1 {
		return 0
	}
	i := int(int64(slot)*int64(n)>>28) + 1
	if slot >= bound(i, n) { // the bounds are rounded
		i++
	}
	return i
}

func bound(i, n int) int32 { return int32(int64(i) * Slots / int64(n)) }

// Contains reports whether a slot is in the range.
func (r Range) Contains(slot int32) bool { return r.From <= slot && slot < r.To }

// Share is the events of one partition: those of the streams in its range, without those that were handled before the
// partition existed. The zero value has all events.
type Share struct {
	Range
	// Passed has the ranges of handled events, in order of their slots. The ranges do not overlap.
	Passed []Passed
}

// Passed means that the events of the slots in Range up to Position were handled.
type Passed struct {
	Range
	Position int64
}

// Slots returns the range of the share: that of all slots for the zero value.
func (s Share) Slots() Range {
	if s.Range == (Range{}) {
		return All
	}
	return s.Range
}

// After returns the share without the ranges of Passed that end at or below position, which no longer have an effect.
func (s Share) After(position int64) Share {
	s.Passed = slices.DeleteFunc(slices.Clone(s.Passed), func(p Passed) bool { return p.Position <= position })
	return s
}

// Whole reports whether the share has all events.
func (s Share) Whole() bool {
	return len(s.Passed) == 0 && s.Slots() == All
}

// Has reports whether the event of a stream at a position is in the share.
func (s Share) Has(stream string, position int64) bool {
	if s.Whole() {
		return true
	}
	slot := Slot(stream)
	return s.Slots().Contains(slot) && position > s.passed(slot)
}

// HandledUpTo returns the position up to which the events of a stream were handled, by this partition with that
// checkpoint or by those before it.
func (s Share) HandledUpTo(stream string, checkpoint int64) int64 {
	if len(s.Passed) == 0 {
		return checkpoint
	}
	return max(checkpoint, s.passed(Slot(stream)))
}

// passed returns the position up to which the events of a slot were handled before the partition existed, or 0.
func (s Share) passed(slot int32) int64 {
	i := sort.Search(len(s.Passed), func(i int) bool { return s.Passed[i].To > slot })
	if i < len(s.Passed) && s.Passed[i].Contains(slot) {
		return s.Passed[i].Position
	}
	return 0
}
