package follow

import (
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
)

// A caller that never comes back keeps what its follower took in memory.
func TestFollowerTakesFewOfTheNewestEventsAtOnce(t *testing.T) {
	const head = 3 * tailEvents / 2
	st := &state{known: true, tail: engine.Tail{Mark: head + 5, Asked: time.Now()}}
	for position := int64(1); position <= head; position++ {
		st.tail.Events = append(st.tail.Events, event.Envelope{Position: position})
	}
	f := &follower{source: &source{}}
	for _, want := range []struct {
		to     int64
		events int
	}{{tailEvents, tailEvents}, {head + 5, head - tailEvents}} {
		p, err := f.take(t.Context(), st)
		if err != nil || p.to != want.to || len(p.events) != want.events || p.events[0].Position != f.at+1 {
			t.Fatalf("after %d it took %d events up to %d, %v, want %+v", f.at, len(p.events), p.to, err, want)
		}
		if &p.events[0] == &st.tail.Events[f.at] {
			t.Error("it keeps all events that the feed has in memory")
		}
		f.at = p.to
	}
}
