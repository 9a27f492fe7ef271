package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/internal/engine/faults"
)

const (
	// apartFor is how long two projections are kept apart after a deadlock. While they are, nothing shows whether its
	// cause lasts. If it does, there is one more deadlock afterwards, which the server takes a second to notice.
	apartFor = 2 * time.Minute
	// mostApart is from how many projections one is kept apart at most. Each of them costs a lock in every batch.
	mostApart = 16
)

// Conflicts remembers the deadlocks of a projection with others, and decides from which of them it is kept apart for
// some time: its batches and theirs do not run at the same time. It is pure and never changed. nil remembers nothing.
type Conflicts struct {
	apart []apart // sorted by the rows
	rows  []int32
}

type apart struct {
	faults.Rival
	until time.Time
}

// Met returns the conflicts after a deadlock with batches of these projections. Without any, nothing changes.
func (c *Conflicts) Met(rivals []faults.Rival, now time.Time) *Conflicts {
	if len(rivals) == 0 {
		return c
	}
	var list []apart
	add := func(a apart) {
		if len(list) < mostApart && !slices.ContainsFunc(list, func(b apart) bool { return b.Row == a.Row }) {
			list = append(list, a)
		}
	}
	for _, r := range rivals {
		add(apart{Rival: r, until: now.Add(apartFor)})
	}
	if c != nil {
		for _, a := range c.apart {
			add(a)
		}
	}
	return newConflicts(list)
}

func newConflicts(list []apart) *Conflicts {
	slices.SortFunc(list, func(a, b apart) int { return cmp.Compare(a.Row, b.Row) })
	c := &Conflicts{apart: list}
	for _, a := range list {
		c.rows = append(c.rows, a.Row)
	}
	return c
}

// At returns the conflicts that still matter.
func (c *Conflicts) At(now time.Time) *Conflicts {
	if c == nil || now.Before(c.Until()) {
		return c
	}
	list := slices.DeleteFunc(slices.Clone(c.apart), func(a apart) bool { return !now.Before(a.until) })
	if len(list) == 0 {
		return nil
	}
	return newConflicts(list)
}

// Until returns when the conflicts change by themselves, zero if they do not.
func (c *Conflicts) Until() time.Time {
	if c == nil {
		return time.Time{}
	}
	return slices.MinFunc(c.apart, func(a, b apart) int { return a.until.Compare(b.until) }).until
}

// Rows returns the rows of the leases of the projections from which this one is kept apart, in ascending order.
func (c *Conflicts) Rows() []int32 {
	if c == nil {
		return nil
	}
	return c.rows
}

// Reason names the projections from which this one is kept apart. It returns nil if there are none.
func (c *Conflicts) Reason() error {
	if c == nil {
		return nil
	}
	var names []string
	for _, a := range c.apart {
		names = append(names, a.ID.String())
	}
	until := slices.MaxFunc(c.apart, func(a, b apart) int { return a.until.Compare(b.until) }).until
	return fmt.Errorf("kept apart until %s from %s: their batches deadlocked on rows that both write",
		until.UTC().Format(time.RFC3339), strings.Join(names, ", "))
}
