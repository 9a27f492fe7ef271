package actors

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
)

// TestReadingAheadHandsOutEveryEventOnceWithinBounds reads random pages, from the tail or not, takes random batches, and
// compares what was taken with all there is.
func TestReadingAheadHandsOutEveryEventOnceWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		def := &engine.Definition{MaxEvents: rapid.IntRange(1, 20).Draw(t, "max events"), MaxBytes: rapid.IntRange(1, 5000).Draw(t, "max bytes")}
		var all []event.Envelope
		head := int64(0)
		for range rapid.IntRange(0, 100).Draw(t, "events") {
			head += rapid.Int64Range(1, 3).Draw(t, "step")
			all = append(all, event.Envelope{Position: head, Body: make([]byte, rapid.IntRange(0, 800).Draw(t, "bytes"))})
		}
		head += rapid.Int64Range(0, 2).Draw(t, "beyond")
		var a ahead
		var taken []int64
		sizing := machine.NewBatchSizer(def.MaxEvents)
		for position := int64(0); position < head; {
			if len(a.events) == 0 || rapid.Bool().Draw(t, "read on") {
				r := a.rangeAfter(def, head)
				a.add(read(all, r))
				if r.UpTo == r.After && a.to < head {
					t.Fatal("nothing would be read")
				}
			}
			if len(a.events) == 0 {
				position = a.to
				continue
			}
			batch, _ := a.take(def, sizing, machine.ParkedStreams{})
			bytes := 0
			for i := range batch.Events {
				taken = append(taken, batch.Events[i].Position)
				bytes += batch.Events[i].Size()
			}
			if n := len(batch.Events); n == 0 || n > def.MaxEvents || n > 1 && bytes > def.MaxBytes {
				t.Fatalf("a batch of %d events, %d bytes", n, bytes)
			}
			if batch.To < batch.Events[len(batch.Events)-1].Position || batch.To > a.to {
				t.Fatalf("a batch up to %d", batch.To)
			}
			position = batch.To
			a.passed(position)
		}
		var want []int64
		for i := range all {
			want = append(want, all[i].Position)
		}
		if !slices.Equal(taken, want) {
			t.Fatalf("taken %v of %v", taken, want)
		}
	})
}

// read is a store's Read over a slice.
func read(all []event.Envelope, r engine.ReadRange) engine.Page {
	page := engine.Page{To: r.UpTo}
	bytes := 0
	for i := range all {
		if all[i].Position <= r.After || all[i].Position > r.UpTo {
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
	p := &projector{def: &engine.Definition{}, mark: 20, from: 10, window: window, ahead: ahead{to: 15}}
	if !p.fromTail() || len(p.ahead.events) != 5 || &p.ahead.events[0] != &window[5] {
		t.Errorf("the shared events are not used as they are: %v", p.ahead.events)
	}
	p = &projector{def: &engine.Definition{Types: []string{"type1"}}, mark: 20, from: 10, window: window, ahead: ahead{to: 10}}
	if !p.fromTail() || len(p.ahead.events) != 5 || p.ahead.to != 20 {
		t.Errorf("filtered: %v up to %d", p.ahead.events, p.ahead.to)
	}
	p = &projector{def: &engine.Definition{}, mark: 20, from: 10, window: window, ahead: ahead{to: 9}}
	if p.fromTail() {
		t.Error("the tail was used where it does not reach")
	}
}

// A checkpoint can be found further back than what was handled: the server crashed, and relaxed commits went with it.
func TestWindowThatWasDroppedIsReadAnew(t *testing.T) {
	p := &projector{def: &engine.Definition{}, mark: 20, from: 10, window: []event.Envelope{{Position: 11}}, ahead: ahead{to: 20}}
	p.dropWindow()
	p.ahead = ahead{to: 15}
	if p.fromTail() {
		t.Errorf("what was dropped passed for nothing: up to %d", p.ahead.to)
	}
}
