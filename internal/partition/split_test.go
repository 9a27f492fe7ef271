package partition_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/internal/partition"
)

// model is a projection whose partitions handle events. It remembers each handled event by itself.
type model struct {
	t       *rapid.T
	streams []string // of the events, by position from 1
	parts   []partition.Part
	handled map[int64]int
	last    map[string]int64
}

func newModel(t *rapid.T) *model {
	all := partition.Part{Share: partition.Share{Range: partition.All}}
	return &model{t: t, parts: []partition.Part{all}, handled: make(map[int64]int), last: make(map[string]int64)}
}

func (m *model) append(n int) {
	for range n {
		m.streams = append(m.streams, fmt.Sprintf("stream-%d", rapid.IntRange(0, 30).Draw(m.t, "stream")))
	}
}

// advance has a partition handle the events of its share up to a position.
func (m *model) advance(i int, to int64) {
	part := &m.parts[i]
	for position := part.Checkpoint + 1; position <= to; position++ {
		stream := m.streams[position-1]
		if !part.Has(stream, position) {
			continue
		}
		m.handled[position]++
		if m.handled[position] > 1 {
			m.t.Fatalf("event %d of %s was handled again by %+v", position, stream, *part)
		}
		for earlier := m.last[stream] + 1; earlier < position; earlier++ {
			if m.streams[earlier-1] == stream {
				m.t.Fatalf("event %d of %s was handled before event %d", position, stream, earlier)
			}
		}
		m.last[stream] = position
	}
	part.Checkpoint = max(part.Checkpoint, to)
}

func (m *model) split(n int) {
	before, err := partition.FrontierOf(m.parts)
	if err != nil {
		m.t.Fatal(err)
	}
	for slot, handled := range m.naive() {
		if i := slices.IndexFunc(before,
			func(p partition.Passed) bool { return p.Contains(slot) }); before[i].Position < handled {
			m.t.Fatalf("slot %d was handled up to %d, the frontier has %+v", slot, handled, before[i])
		}
	}
	m.parts = before.Split(n)
	checkParts(m.t, m.parts, before, n)
}

// naive returns the last handled event of each slot.
func (m *model) naive() map[int32]int64 {
	last := make(map[int32]int64)
	for stream, position := range m.last {
		last[partition.Slot(stream)] = max(last[partition.Slot(stream)], position)
	}
	return last
}

// checkParts checks what holds for every split of a frontier.
func checkParts(t rapid.TB, parts []partition.Part, from partition.Frontier, n int) {
	t.Helper()
	if len(parts) != max(1, n) {
		t.Fatalf("%d partitions, want %d", len(parts), n)
	}
	passed := 0
	for i, p := range parts {
		if p.Range != partition.RangeOf(i+1, n) {
			t.Fatalf("partition %d of %d has %v", i+1, n, p.Range)
		}
		end := p.From
		for _, piece := range p.Passed {
			if piece.From < end || piece.To <= piece.From || piece.To > p.To || piece.Position <= p.Checkpoint {
				t.Fatalf("partition %d of %d has passed %+v in %+v", i+1, n, piece, p)
			}
			end = piece.To
		}
		passed += len(p.Passed)
	}
	if most := len(from) + n - 1; passed > most {
		t.Fatalf("%d ranges have been passed, want at most %d", passed, most)
	}
	if after, err := partition.FrontierOf(parts); err != nil || !slices.Equal(after, from) {
		t.Fatalf("the frontier changed from %v to %v, error %v", from, after, err)
	}
}

func TestResplitsLoseAndRepeatNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) { m.append(rapid.IntRange(1, 20).Draw(t, "events")) },
			"advance": func(t *rapid.T) {
				i := rapid.IntRange(0, len(m.parts)-1).Draw(t, "partition")
				if head := int64(len(m.streams)); head > m.parts[i].Checkpoint {
					m.advance(i, rapid.Int64Range(m.parts[i].Checkpoint, head).Draw(t, "to"))
				}
			},
			"split": func(t *rapid.T) { m.split(rapid.IntRange(1, 16).Draw(t, "n")) },
		})
		for i := range m.parts {
			m.advance(i, int64(len(m.streams)))
		}
		if len(m.handled) != len(m.streams) {
			t.Errorf("%d of %d events were handled", len(m.handled), len(m.streams))
		}
		m.split(rapid.IntRange(1, 16).Draw(t, "n"))
		for _, p := range m.parts {
			if len(p.Passed) > 0 || p.Checkpoint != int64(len(m.streams)) {
				t.Errorf("all events up to %d are handled, but a partition has %+v", len(m.streams), p)
			}
		}
	})
}

func TestResplitIntoTheSameNumberChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 16).Draw(t, "n")
		frontier, err := partition.FrontierOf(drawParts(t, n))
		if err != nil {
			t.Fatal(err)
		}
		again, err := partition.FrontierOf(frontier.Split(n))
		if err != nil || !slices.Equal(frontier, again) {
			t.Errorf("%v became %v, error %v", frontier, again, err)
		}
	})
}

// drawParts returns n partitions at random checkpoints.
func drawParts(t *rapid.T, n int) []partition.Part {
	parts := make([]partition.Part, n)
	for i := range parts {
		parts[i] = partition.Part{
			Share:      partition.Share{Range: partition.RangeOf(i+1, n)},
			Checkpoint: rapid.Int64Range(0, 5).Draw(t, "checkpoint"),
		}
	}
	return parts
}

func TestTrimmedShareHasTheSameEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const highest = 5 // of drawParts
		frontier, err := partition.FrontierOf(drawParts(t, rapid.IntRange(1, 16).Draw(t, "before")))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range frontier.Split(rapid.IntRange(1, 3).Draw(t, "after")) {
			checkpoint := rapid.Int64Range(p.Checkpoint, 6).Draw(t, "later")
			trimmed := p.After(checkpoint)
			if checkpoint >= highest && len(trimmed.Passed) > 0 {
				t.Fatalf("everything up to %d is handled, but %v is left", checkpoint, trimmed.Passed)
			}
			for i := range 20 {
				stream := fmt.Sprint("stream-", i)
				for position := checkpoint + 1; position < 8; position++ {
					if p.Has(stream, position) != trimmed.Has(stream, position) {
						t.Fatalf("event %d of %s: %v in %+v, not in %+v", position, stream, p.Has(stream, position), p,
							trimmed)
					}
				}
			}
		}
	})
}

func TestPartitionsThatLeaveOutSlotsAreRefused(t *testing.T) {
	share := func(from, to int32, passed ...partition.Passed) partition.Part {
		return partition.Part{Share: partition.Share{Range: partition.Range{From: from, To: to}, Passed: passed}}
	}
	outside := partition.Passed{Range: partition.Range{From: 5, To: 20}, Position: 1}
	for name, parts := range map[string][]partition.Part{
		"no partition":              {},
		"a missing slot":            {share(0, 10), share(11, partition.Slots)},
		"a slot in two partitions":  {share(0, 10), share(9, partition.Slots)},
		"missing last slots":        {share(0, 10)},
		"missing first slots":       {share(1, partition.Slots)},
		"an empty partition":        {share(0, 0), share(0, partition.Slots)},
		"a passed slot of another":  {share(0, 10, outside), share(10, partition.Slots)},
		"a slot that passed twice":  {share(0, partition.Slots, outside, outside)},
		"an empty range has passed": {share(0, partition.Slots, partition.Passed{Position: 1})},
	} {
		if f, err := partition.FrontierOf(parts); err == nil {
			t.Errorf("%s: %v", name, f)
		}
	}
	if _, err := partition.FrontierOf([]partition.Part{{}}); err != nil {
		t.Errorf("the zero value has all slots: %v", err)
	}
}

// FuzzSplit splits partitions that data describes: pairs of a slot and a position, then the numbers of partitions.
func FuzzSplit(f *testing.F) {
	f.Add([]byte{1, 0, 0, 5, 2, 0, 0, 9}, uint16(3), uint16(16))
	f.Add([]byte{}, uint16(1), uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, first, second uint16) {
		part := partition.Part{Share: partition.Share{Range: partition.All}}
		slot := int32(0)
		for ; len(data) >= 4; data = data[4:] {
			raw := binary.BigEndian.Uint32(data)
			to := slot + int32(raw>>12)*64
			if to > slot && to < partition.Slots {
				part.Passed = append(part.Passed, partition.Passed{Range: partition.Range{From: slot, To: to},
					Position: int64(raw & 0xfff)})
				slot = to
			}
		}
		frontier, err := partition.FrontierOf([]partition.Part{part})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{int(first)%partition.Most + 1, int(second)%partition.Most + 1} {
			parts := frontier.Split(n)
			checkParts(t, parts, frontier, n)
			frontier, err = partition.FrontierOf(parts)
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
