package machine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
)

// TestReadingAheadHandsOutEveryEventOnceWithinBounds reads random pages, from the tail or not, takes random batches,
// and compares the events that were taken with all events.
func TestReadingAheadHandsOutEveryEventOnceWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		def := &engine.Definition{
			MaxEvents: rapid.IntRange(1, 20).Draw(t, "max events"),
			MaxBytes:  rapid.IntRange(1, 5000).Draw(t, "max bytes"),
		}
		def.Largest = rapid.IntRange(0, 80).Draw(t, "largest batch")
		var all []event.Envelope
		share := shares.Draw(t, "share")
		head := int64(0)
		for range rapid.IntRange(0, 100).Draw(t, "events") {
			head += rapid.Int64Range(1, 3).Draw(t, "step")
			all = append(all, event.Envelope{Position: head,
				Stream: rapid.SampledFrom(streams).Draw(t, "stream"),
				Body:   make([]byte, rapid.IntRange(0, 800).Draw(t, "bytes"))})
		}
		head += rapid.Int64Range(0, 2).Draw(t, "beyond")
		var a Buffer
		var taken []int64
		sizing := NewBatchSizer(def.MaxEvents, def.LargestBatch())
		for position := int64(0); position < head; {
			if len(a.Events) == 0 || rapid.Bool().Draw(t, "read on") {
				r := a.next(def, sizing.Most(), share, head)
				a = a.add(read(all, r))
				if r.UpTo == r.After && a.To < head {
					t.Fatal("nothing would be read")
				}
			}
			if len(a.Events) == 0 {
				position = a.To
				continue
			}
			run := BatchRun{Lease: engine.Lease{Share: share}, Buffer: a, Sizer: sizing, def: def, mark: head}
			_, step := run.FoundParked(nil)
			batch := step.(ApplyBatch).Batch
			bytes := 0
			for i := range batch.Events {
				taken = append(taken, batch.Events[i].Position)
				bytes += batch.Events[i].Size()
			}
			if n := len(batch.Events); n == 0 || n > def.LargestBatch() || n > 1 && bytes > def.MaxBytes {
				t.Fatalf("a batch of %d events, %d bytes", n, bytes)
			}
			if batch.To < batch.Events[len(batch.Events)-1].Position || batch.To > a.To {
				t.Fatalf("a batch up to %d", batch.To)
			}
			position = batch.To
			a = a.passed(position)
			sizing.Applied(len(batch.Events), time.Duration(rapid.IntRange(0, 200).Draw(t, "ms"))*time.Millisecond)
		}
		var want []int64
		for i := range all {
			if share.Has(all[i].Stream, all[i].Position) {
				want = append(want, all[i].Position)
			}
		}
		if !slices.Equal(taken, want) {
			t.Fatalf("taken %v of %v", taken, want)
		}
	})
}

var streams = []string{"a", "b", "c", "d", "e", "f"}

// shares draws the share of a partition. Often the share has all events.
var shares = rapid.Custom(func(t *rapid.T) (share partition.Share) {
	n := rapid.SampledFrom([]int{1, 1, 2, 3, 16}).Draw(t, "partitions")
	share.Range = partition.RangeOf(rapid.IntRange(1, n).Draw(t, "partition"), n)
	if rapid.Bool().Draw(t, "some events were handled before") {
		middle := share.From + (share.To-share.From)/2
		share.Passed = []partition.Passed{
			{Range: partition.Range{From: share.From, To: middle}, Position: rapid.Int64Range(1, 100).Draw(t, "up to")},
		}
	}
	return share
})

// read is a store's Read over a slice.
func read(all []event.Envelope, r engine.ReadRange) engine.Page {
	page := engine.Page{To: r.UpTo}
	bytes := 0
	for i := range all {
		if all[i].Position <= r.After || all[i].Position > r.UpTo || !r.Share.Has(all[i].Stream, all[i].Position) {
			continue
		}
		if len(page.Events) == r.Limit || len(page.Events) > 0 && bytes+all[i].Size() > r.MaxBytes {
			page.To = page.Events[len(page.Events)-1].Position
			break
		}
		page.Events = append(page.Events, all[i])
		bytes += all[i].Size()
	}
	return page
}

func TestTailIsSharedAndFilteredByType(t *testing.T) {
	var window []event.Envelope
	for i := range int64(10) {
		window = append(window, event.Envelope{Position: 11 + i, Type: fmt.Sprint("type", i%2)})
	}
	tail := &Tail{Mark: 20, From: 10, Events: window}
	b, taken := Buffer{To: 15}.fromTail(&engine.Definition{}, partition.Share{}, tail)
	if !taken || len(b.Events) != 5 || &b.Events[0] != &window[5] {
		t.Errorf("the shared events are not used as they are: %v", b.Events)
	}
	b, taken = Buffer{To: 10}.fromTail(&engine.Definition{Types: []string{"type1"}}, partition.Share{}, tail)
	if !taken || len(b.Events) != 5 || b.To != 20 {
		t.Errorf("filtered: %v up to %d", b.Events, b.To)
	}
	if cap(b.Events) >= len(window) {
		t.Errorf("a buffer of 5 events holds the memory of %d", cap(b.Events))
	}
	b, taken = Buffer{To: 10}.fromTail(&engine.Definition{Types: []string{"other"}}, partition.Share{}, tail)
	if !taken || b.Events != nil || b.To != 20 {
		t.Errorf("a tail without events of the projection: %d with the memory of %d, up to %d", len(b.Events),
			cap(b.Events), b.To)
	}
	_, taken = (Buffer{To: 20}).fromTail(&engine.Definition{}, partition.Share{}, tail)
	if taken {
		t.Error("the tail was used where it has nothing new")
	}
	_, taken = (Buffer{To: 9}).fromTail(&engine.Definition{}, partition.Share{}, tail)
	if taken {
		t.Error("the tail was used where it does not reach")
	}
}

func TestTailIsFilteredByShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share, tail := shares.Draw(t, "share"), &Tail{From: 10}
		for tail.Mark = 10; tail.Mark < 30; tail.Mark++ {
			tail.Events = append(tail.Events, event.Envelope{Position: tail.Mark + 1,
				Stream: rapid.SampledFrom(streams).Draw(t, "stream")})
		}
		to := rapid.Int64Range(10, 29).Draw(t, "to")
		b, taken := Buffer{To: to}.fromTail(&engine.Definition{}, share, tail)
		want := slices.DeleteFunc(slices.Clone(tail.Events), func(e event.Envelope) bool {
			return e.Position <= to || !share.Has(e.Stream, e.Position)
		})
		same := slices.EqualFunc(b.Events, want, func(a, b event.Envelope) bool { return a.Position == b.Position })
		if !taken || !same || b.To != tail.Mark {
			t.Errorf("taken %v up to %d, want %v", b.Events, b.To, want)
		}
	})
}

// A checkpoint may be before events that were handled: the server crashed, and asynchronous commits were lost.
func TestTailThatWasDroppedIsReadAnew(t *testing.T) {
	tail := (&Tail{Mark: 20, From: 10, Events: events{{Position: 11}}}).dropped()
	if b, taken := (Buffer{To: 15}).fromTail(&engine.Definition{}, partition.Share{}, tail); taken {
		t.Errorf("what was dropped passed for nothing: up to %d", b.To)
	}
}

func TestReadsAreBoundedByWhatIsKnown(t *testing.T) {
	size := event.Envelope{}.Size()
	page := engine.Page{Events: events{{Position: 1}, {Position: 2}}, To: 2}
	for name, test := range map[string]struct {
		b          Buffer
		types      []string
		partitions int
		limit      int
		upTo, mark int64
	}{
		"the size of events is not known": {Buffer{To: 2}, nil, 1, firstRead, 1_000_000, 1_000_000},
		"it is known":                     {Buffer{}.add(page), nil, 1, 10, 1_000_000, 1_000_000},
		"only some types":                 {Buffer{To: 2}, []string{"a"}, 1, firstRead, 2 + maxScan, 1_000_000},
		"only some types, near the mark":  {Buffer{To: 2}, []string{"a"}, 1, firstRead, 100, 100},
		"only one partition":              {Buffer{To: 2}, nil, 3, firstRead, 2 + maxScan, 1_000_000},
	} {
		share := partition.Share{Range: partition.RangeOf(1, test.partitions)}
		def := &engine.Definition{Types: test.types, MaxEvents: 100, MaxBytes: 10*size + size/2}
		if r := test.b.next(def, def.MaxEvents, share, test.mark); r.Limit != test.limit || r.UpTo != test.upTo ||
			r.After != 2 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	full := Buffer{Events: make(events, 5)}
	if n := len(full.window(&engine.Definition{MaxBytes: 3 * size}, 5)); n != 3 {
		t.Errorf("a batch of %d events has the bytes of 3", n)
	}
}

// After a re-split into one partition, the partition reads without a filter again when it has reached the highest
// position that one of the previous partitions had handled.
func TestShareBecomesWholeWhenTheCheckpointHasPassedIt(t *testing.T) {
	half := partition.Range{From: 0, To: partition.Slots / 2}
	share := partition.Share{Range: partition.All, Passed: []partition.Passed{{Range: half, Position: 10}}}
	for name, move := range map[string]func(s *step, to int64){
		"a batch":    (*step).progress,
		"an advance": func(s *step, to int64) { s.onAdvanced(Advance{To: to}, true) },
	} {
		s := &step{Machine: &Machine{Lease: engine.Lease{Share: share, Checkpoint: 5}}}
		move(s, 9)
		if s.Lease.Share.Whole() || !s.Lease.Share.Has("s", 11) {
			t.Errorf("%s to 9: %+v", name, s.Lease.Share)
		}
		move(s, 10)
		if !s.Lease.Share.Whole() || s.Lease.Checkpoint != 10 {
			t.Errorf("%s to 10: %+v", name, s.Lease.Share)
		}
	}
}
