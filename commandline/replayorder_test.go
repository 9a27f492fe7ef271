package commandline

import (
	"strings"
	"testing"
)

func TestReplayOutOfOrderIsRefusedAndExplained(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.startNode(t)
		p.must(t, done, "events", "append", "order-1", "Poison", "12")
		p.await(t, `^1\n$`, "dead-letters", "count", "totals")
		p.must(t, done, "events", "append", "order-1", "Placed", "12")
		p.await(t, `totals +live +0 +1 +0 +- +- +\S+ +2`, "projections", "status", "totals")
		const repair = "rebuild the projection, or say --out-of-order if its handler does not mind the order"
		for _, by := range []string{"1", "--all"} {
			out := p.must(t, failed, "dead-letters", "replay", "totals", by)
			if want := "totals: replayed 0 events; 1 event refused, since later events of the stream are handled: order-1\nmillrace: 1 event refused: " + repair + "\n"; out != want {
				t.Errorf("printed %q, want %q", out, want)
			}
		}
		if out := p.must(t, failed, "dead-letters", "replay", "totals", "--all", "--json"); !strings.Contains(out,
			`"done":0,"failed":0,"refused":{"events":1,"streams":["order-1"]}`) {
			t.Error(out)
		}
		if out := p.must(t, done, "dead-letters", "list", "totals"); !strings.Contains(out,
			"replay refused, later events of the stream are handled; division by zero") {
			t.Error(out)
		}
		out := p.must(t, done, "dead-letters", "show", "totals", "1")
		if !strings.Contains(out, "error: division by zero\n") ||
			!strings.Contains(out, "replay: refused, since later events of the stream are handled; ") {
			t.Error(out)
		}
		if out := p.must(t, done, "dead-letters", "show", "totals", "1", "--json"); !strings.Contains(out,
			`"outOfOrder":true`) {
			t.Error(out)
		}
		// Its handler is called now, and is not repaired.
		if out := p.must(t, failed, "dead-letters", "replay", "totals", "1", "--out-of-order"); !strings.Contains(out,
			"1 event failed again") {
			t.Error(out)
		}
	})
}
