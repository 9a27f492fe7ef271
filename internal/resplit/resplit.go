// Package resplit decides how new partitions of a projection continue the work of old ones.
package resplit

import (
	"cmp"
	"slices"

	"github.com/millrace-go/millrace/internal/partition"
)

// Old is a partition that is replaced.
type Old struct {
	partition.Part
	Row        int32
	CrashCount int
	Skipped    int64
	Halted     bool
	// Failing and Crashed are events that were not handled yet, zero if there is none.
	Failing, Crashed Attempted
	Owner            Owner
}

// Owner reports whether a partition has an owner.
type Owner int

const (
	NoOwner Owner = iota
	LivingOwner
	DeadOwner
)

// Attempted is an event whose attempts a partition counts.
type Attempted struct {
	Position int64
	Attempts int
	// Slot is -1 if the event is not in the store any more.
	Slot int32
}

// New is a partition that is inserted. Failing, Crashed and Halted are the rows of old partitions from which it has its
// failing event, the event at which processes may have crashed, and the reason why it is halted; nil for none.
type New struct {
	partition.Part
	Number                   int
	CrashCount               int
	Skipped                  int64
	Failing, Crashed, Halted *int32
	CrashAttempts            int
}

// Partitions are the partitions of a projection that are replaced.
type Partitions []Old

// Of returns the partitions in order of their slots, as the end of their owners' work leaves them.
func Of(list []Old) Partitions {
	old := make(Partitions, len(list))
	for i, o := range list {
		switch o.Owner {
		case DeadOwner:
			o.CrashCount++
		case LivingOwner:
			// The process is alive, and the re-split ends its attempt.
			o.Crashed.Attempts--
		}
		if o.Failing.Position <= o.Checkpoint {
			o.Failing = Attempted{}
		}
		if o.Crashed.Position <= o.Checkpoint || o.Crashed.Attempts <= 0 {
			o.Crashed = Attempted{}
		}
		old[i] = o
	}
	slices.SortFunc(old, func(a, b Old) int { return cmp.Compare(a.From, b.From) })
	return old
}

// Rows returns the rows of the partitions.
func (old Partitions) Rows() []int32 {
	rows := make([]int32, len(old))
	for i, o := range old {
		rows[i] = o.Row
	}
	return rows
}

// Owned returns the rows of the partitions that have such an owner.
func (old Partitions) Owned(owner Owner) []int32 {
	rows := []int32{}
	for _, o := range old {
		if o.Owner == owner {
			rows = append(rows, o.Row)
		}
	}
	return rows
}

// Attempted returns the positions of the events whose slots Replace needs.
func (old Partitions) Attempted() (positions []int64) {
	for _, o := range old {
		for _, e := range []Attempted{o.Failing, o.Crashed} {
			if e.Position > 0 {
				positions = append(positions, e.Position)
			}
		}
	}
	return positions
}

// Replace returns the n partitions that continue where the old ones are. slots has the slots of the events of Attempted
// that are in the store.
func (old Partitions) Replace(n int, slots map[int64]int32) ([]New, error) {
	old = slices.Clone(old)
	parts := make([]partition.Part, len(old))
	for i := range old {
		for _, e := range []*Attempted{&old[i].Failing, &old[i].Crashed} {
			if slot, found := slots[e.Position]; found {
				e.Slot = slot
			} else {
				e.Slot = -1
			}
		}
		parts[i] = old[i].Part
	}
	frontier, err := partition.FrontierOf(parts)
	if err != nil {
		return nil, err
	}
	var list []New
	numbers := partition.Numbers(n)
	for i, part := range frontier.Split(n) {
		list = append(list, old.next(part, numbers[i]))
	}
	return list, nil
}

// next returns the new partition with the share and the checkpoint of part.
func (old Partitions) next(part partition.Part, number int) New {
	next := New{Part: part, Number: number}
	var failing, crashed Attempted
	for _, o := range old {
		if !overlap(o.Range, part.Range) {
			continue
		}
		next.CrashCount = max(next.CrashCount, o.CrashCount)
		if part.Contains(o.From) {
			next.Skipped += o.Skipped
		}
		if o.Failing.first(part.Range, failing) {
			failing, next.Failing = o.Failing, &o.Row
		}
		if o.Crashed.first(part.Range, crashed) {
			crashed, next.Crashed, next.CrashAttempts = o.Crashed, &o.Row, o.Crashed.Attempts
		}
		if o.haltsIn(part.Range) {
			next.Halted = &o.Row
		}
	}
	return next
}

func overlap(a, b partition.Range) bool { return a.From < b.To && b.From < a.To }

// haltsIn reports whether the partition is halted at an event of the slots of r. If that event is unknown, the
// partition counts as halted in all of its slots.
func (o Old) haltsIn(r partition.Range) bool {
	for _, e := range []Attempted{o.Failing, o.Crashed} {
		if e.Position > 0 && e.Slot >= 0 {
			return o.Halted && r.Contains(e.Slot)
		}
	}
	return o.Halted
}

// first reports whether the event is in the slots of r, before that of other.
func (e Attempted) first(r partition.Range, other Attempted) bool {
	return e.Position > 0 && e.Slot >= 0 && r.Contains(e.Slot) && (other.Position == 0 || e.Position < other.Position)
}
