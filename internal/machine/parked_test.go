package machine

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"
)

func TestParkedStreamsKeepNoPageInMemory(t *testing.T) {
	text := "the text of a page with the stream s1" // of which an event's strings are parts
	id := text[len(text)-2:]
	m := &Machine{}
	m.parkedStream(id)
	for kept := range m.Replays.Parked.ids {
		if kept != "s1" || unsafe.StringData(kept) == unsafe.StringData(id) {
			t.Errorf("%q is kept as a part of the page", kept)
		}
	}
	if len(m.Replays.Parked.ids) != 1 {
		t.Errorf("%d ids", len(m.Replays.Parked.ids))
	}
}

func TestParkedStreamsInMemoryAreBounded(t *testing.T) {
	named := func(n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprint("s", i))
		}
		return ids
	}
	for name, test := range map[string]struct {
		parked *ParkedStreams
		known  bool
		n      int
	}{
		"not read":               {nil, false, 0},
		"none":                   {parkedStreams(nil), true, 0},
		"as many as may be":      {parkedStreams(named(mostParkedStreams)), true, mostParkedStreams},
		"one too many":           {parkedStreams(named(mostParkedStreams + 1)), false, 0},
		"ids that are too long":  {parkedStreams([]string{strings.Repeat("a", mostParkedBytes), "b"}), false, 0},
		"one more":               {parkedStreams(named(2)).with("a"), true, 3},
		"one of them again":      {parkedStreams(named(2)).with("s1"), true, 2},
		"one more than may be":   {parkedStreams(named(mostParkedStreams)).with("a"), false, 0},
		"one more, none is read": {(*ParkedStreams)(nil).with("a"), false, 0},
		"one more of too many":   {parkedStreams(named(mostParkedStreams + 1)).with("a"), false, 0},
	} {
		if known := test.parked.known(); known != test.known {
			t.Errorf("%s: known: %v", name, known)
		} else if known && len(test.parked.ids) != test.n {
			t.Errorf("%s: %d streams", name, len(test.parked.ids))
		}
	}
	before := parkedStreams(named(2))
	before.with("a")
	if len(before.ids) != 2 {
		t.Error("one more has changed what a run may have")
	}
}
