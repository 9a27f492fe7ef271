package resplit_test

import (
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/resplit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ranges(n int) (list []partition.Range) {
	for _, i := range partition.Numbers(n) {
		list = append(list, partition.RangeOf(i, n))
	}
	return list
}

// drawReplays draws open rows of up to three replays in n partitions.
func drawReplays(t *rapid.T, n int) (open []resplit.Replay) {
	id := int64(100)
	for root := int64(1); root <= rapid.Int64Range(1, 3).Draw(t, "replays"); root++ {
		for _, slots := range ranges(n) {
			for range rapid.IntRange(0, 2).Draw(t, "rows") {
				id++
				o := resplit.Replay{ID: id, Root: root, Range: slots, StreamOnly: rapid.Bool().Draw(t, "stream only")}
				stream := fmt.Sprint("s", rapid.IntRange(0, 30).Draw(t, "stream"))
				if slots.Contains(partition.Slot(stream)) {
					o.Stream = &stream
				}
				open = append(open, o)
			}
		}
	}
	return open
}

func TestEachStreamOfAReplayContinuesInTheOnePartitionThatHasIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		open := drawReplays(t, rapid.IntRange(1, 6).Draw(t, "before"))
		parts := ranges(rapid.IntRange(1, 6).Draw(t, "after"))
		list := resplit.Continue(open, parts)
		type place struct {
			root   int64
			part   int
			stream string
		}
		rows, streams := make(map[place]int), make(map[place]int)
		for i, c := range list {
			from := open[slices.IndexFunc(open, func(o resplit.Replay) bool { return o.ID == c.Like })]
			if from.Root != c.Root || !c.StreamOnly && from.StreamOnly {
				t.Fatalf("%+v is like %+v", c, from)
			}
			if !c.StreamOnly {
				rows[place{c.Root, c.Part, ""}]++
			}
			if c.Stream != nil {
				streams[place{c.Root, c.Part, *c.Stream}]++
			}
			if i > 0 && (list[i-1].Root > c.Root ||
				list[i-1].Root == c.Root && list[i-1].Part > c.Part ||
				list[i-1].Root == c.Root && list[i-1].Part == c.Part && list[i-1].StreamOnly && !c.StreamOnly) {
				t.Fatalf("%+v comes after %+v", c, list[i-1])
			}
		}
		wanted := 0
		seen := make(map[place]bool)
		for _, o := range open {
			for i, part := range parts {
				filters := place{o.Root, i, ""}
				if !o.StreamOnly && o.From < part.To && part.From < o.To && rows[filters] != 1 {
					t.Fatalf("%d rows continue the filter of %+v in partition %d", rows[filters], o, i)
				}
				if o.Stream == nil || !part.Contains(partition.Slot(*o.Stream)) {
					continue
				}
				at := place{o.Root, i, *o.Stream}
				if streams[at] != 1 {
					t.Fatalf("%d rows continue the stream of %+v", streams[at], o)
				}
				if !seen[at] {
					seen[at] = true
					wanted++
				}
			}
		}
		if len(streams) != wanted {
			t.Fatalf("%d streams continue, want %d", len(streams), wanted)
		}
		checkMarks(t, open, list)
	})
}

// checkMarks checks that the marks lead from each open row to rows of its replay, to those of their streams first.
func checkMarks(t *rapid.T, open []resplit.Replay, list []resplit.Continuation) {
	ids := make([]int64, len(list))
	for i := range ids {
		ids[i] = int64(1000 + i)
	}
	marks := resplit.Marks(open, list, ids)
	for _, o := range open {
		for i, c := range list {
			if c.Root != o.Root {
				continue
			}
			first := slices.IndexFunc(list,
				func(other resplit.Continuation) bool { return other.Root == c.Root && other.Part == c.Part })
			general := slices.IndexFunc(marks,
				func(m resplit.Mark) bool { return m.Part == c.Part && m.Before == o.ID && m.Stream == nil })
			if general < 0 || marks[general].After != ids[first] {
				t.Fatalf("dead letters that %+v has tried: mark %d of %+v, want row %d", o, general, marks, ids[first])
			}
			if c.Stream == nil {
				continue
			}
			own := slices.IndexFunc(marks, func(m resplit.Mark) bool {
				return m.Part == c.Part && m.Before == o.ID && m.Stream != nil && *m.Stream == *c.Stream
			})
			if own < 0 || own > general || marks[own].After != ids[i] {
				t.Fatalf("stream %s that %+v has tried: mark %d of %+v", *c.Stream, o, own, marks)
			}
		}
	}
}

func TestFailuresGoToTheNewPartitionOfTheirEvent(t *testing.T) {
	const position = 70
	slot := partition.Slot("order-1")
	for name, test := range map[string]struct {
		owner           resplit.Owner
		attempts        int
		known           bool
		crashCount      int
		crashAttempts   int
		failing, halted int // new partitions of 4
	}{
		"free":          {resplit.NoOwner, 2, true, 0, 2, 1, 1},
		"living":        {resplit.LivingOwner, 2, true, 0, 1, 1, 1},
		"only attempt":  {resplit.LivingOwner, 1, true, 0, 0, 1, 1},
		"dead":          {resplit.DeadOwner, 1, true, 1, 1, 1, 1},
		"event is gone": {resplit.NoOwner, 2, false, 0, 0, 0, 4},
	} {
		t.Run(name, func(t *testing.T) {
			old := resplit.Of([]resplit.Old{{Part: partition.Part{Checkpoint: 60}, Row: 7, Skipped: 3, Halted: true,
				Owner:   test.owner,
				Failing: resplit.Attempted{Position: position, Attempts: 5},
				Crashed: resplit.Attempted{Position: position, Attempts: test.attempts}}})
			slots := make(map[int64]int32)
			if test.known {
				slots[position] = slot
			}
			old[0].Range = partition.All
			list, err := old.Replace(4, slots)
			if err != nil {
				t.Fatal(err)
			}
			var skipped int64
			failing, halted, attempts := 0, 0, 0
			for _, p := range list {
				skipped += p.Skipped
				attempts += p.CrashAttempts
				if p.CrashCount != test.crashCount || p.Checkpoint != 60 {
					t.Errorf("%+v", p)
				}
				if p.Failing != nil {
					failing++
				}
				if p.Halted != nil {
					halted++
				}
				if (p.Failing != nil || p.Crashed != nil) && !p.Contains(slot) {
					t.Errorf("%+v does not have the slot %d", p, slot)
				}
			}
			if skipped != 3 || failing != test.failing || halted != test.halted || attempts != test.crashAttempts {
				t.Errorf("skipped %d, %d failing, %d halted, %d attempts", skipped, failing, halted, attempts)
			}
		})
	}
}

// A failure at or below the checkpoint does not count any more.
func TestFailuresBelowTheCheckpointAreForgotten(t *testing.T) {
	old := resplit.Of([]resplit.Old{{Part: partition.Part{Share: partition.Share{Range: partition.All}, Checkpoint: 70},
		Row:     7,
		Failing: resplit.Attempted{Position: 70, Attempts: 5}, Crashed: resplit.Attempted{Position: 69, Attempts: 5}}})
	if positions := old.Attempted(); len(positions) > 0 {
		t.Errorf("the events at %v", positions)
	}
	if list, err := old.Replace(2, nil); err != nil || list[0].Failing != nil || list[1].CrashAttempts != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
