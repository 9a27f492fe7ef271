package partition_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/internal/partition"
)

// vectors are published in docs/partitions.md. They must never change.
var vectors = map[string]int32{
	"":            0xd41d8cd,
	"a":           0x0cc175b,
	"order-1":     0x6e7f85a,
	"order-2":     0x18899d7,
	"stream-Ä-日本": 0x182946c,
}

func TestSlotsMatchThePublishedVectors(t *testing.T) {
	for stream, want := range vectors {
		if got := partition.Slot(stream); got != want {
			t.Errorf("slot of %q: %#07x, want %#07x", stream, got, want)
		}
	}
}

func TestEverySlotHasOnePartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, partition.Most).Draw(t, "n")
		i := rapid.IntRange(1, n).Draw(t, "partition")
		r := partition.RangeOf(i, n)
		if i == 1 && r.From != 0 || i == n && r.To != partition.Slots ||
			i < n && r.To != partition.RangeOf(i+1, n).From {
			t.Errorf("partition %d of %d has the slots %v", i, n, r)
		}
		for _, slot := range []int32{r.From, r.To - 1, rapid.Int32Range(r.From, r.To-1).Draw(t, "slot")} {
			if of := partition.Of(slot, n); of != i {
				t.Errorf("slot %d of partition %d of %d is in partition %d", slot, i, n, of)
			}
		}
	})
}
