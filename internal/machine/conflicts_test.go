package machine

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine/faults"
)

func TestProjectionsAreKeptApartForSomeTimeAfterADeadlock(t *testing.T) {
	now := time.Unix(1000, 0)
	rival := func(row int32) []faults.Rival { return []faults.Rival{{Row: row}} }
	var c *Conflicts
	c = c.Met(nil, now)
	if c != nil || c.At(now) != nil || c.Reason() != nil || !c.Until().IsZero() {
		t.Fatalf("without a known rival: %+v", c)
	}
	first := c.Met(rival(7), now)
	both := first.Met(rival(3), now.Add(time.Second))
	if !slices.Equal(first.Rows(), []int32{7}) || !slices.Equal(both.Rows(), []int32{3, 7}) {
		t.Errorf("rows %v, then %v", first.Rows(), both.Rows())
	}
	for _, step := range []struct {
		after time.Duration
		rows  []int32
	}{{apartFor - 1, []int32{3, 7}}, {apartFor, []int32{3}}, {apartFor + time.Second, nil}} {
		if rows := both.At(now.Add(step.after)).Rows(); !slices.Equal(rows, step.rows) {
			t.Errorf("after %v: rows %v, want %v", step.after, rows, step.rows)
		}
	}
	if again := both.Met(rival(7),
		now.Add(time.Minute)).At(now.Add(apartFor + time.Second)); !slices.Equal(again.Rows(), []int32{7}) {
		t.Errorf("another deadlock with the first prolongs to %v", again.Rows())
	}
	twice := first.Met(append(rival(7), rival(7)...), now)
	if rows := twice.Rows(); !slices.Equal(rows, []int32{7}) || twice.Reason().Error() != first.Reason().Error() {
		t.Errorf("a rival that is named twice: %v, %v", rows, twice.Reason())
	}
	for row := range int32(40) {
		both = both.Met(rival(row+100), now)
	}
	if rows := both.Rows(); len(rows) != mostApart || rows[mostApart-1] != 139 {
		t.Errorf("kept apart from %v", rows)
	}
}

func TestSizeGrowsMoreSlowlyAfterRepeatedConflicts(t *testing.T) {
	grows := func(conflicts int) (successes int) {
		s := NewBatchSizer(100, 100)
		for range conflicts {
			s.Conflicted(100)
		}
		if s.size != 50 {
			t.Fatalf("size %d", s.size)
		}
		for ; s.size < 100; successes++ {
			s.Succeeded()
		}
		return successes
	}
	for conflicts, want := range map[int]int{1: 1, 2: 2, 3: 4, 10: slowest} {
		if got := grows(conflicts); got != want {
			t.Errorf("after %d conflicts the size doubles after %d batches, want %d", conflicts, got, want)
		}
	}
}
