package projection

import "github.com/millrace-go/millrace/event"

// Aside is what is known of parked streams when a batch is taken: which of the streams ahead are parked, and how many more
// events may be.
type Aside struct {
	Streams map[string]bool
	Room    int64
}

// Split says which of the events ahead, in order, make the next batch: n of them, of which handled go to the handler and
// behind are parked, since their streams are. handled are as many as Take allows. An event that is to stand alone does so
// without events before it: those that are parked there go first. Where n is 0 though there are events, the first would
// have to be parked and there is no room. It is pure.
func (s *Sizing) Split(events []event.Envelope, aside Aside) (handled, behind []event.Envelope, n int) {
	if len(aside.Streams) == 0 {
		n = s.Take(events)
		return events[:n:n], nil, n
	}
	var live []event.Envelope
	for _, e := range events {
		if !aside.Streams[e.Stream] {
			live = append(live, e)
		}
	}
	take := s.Take(live)
	if s.size == 1 && len(events) > 0 && aside.Streams[events[0].Stream] {
		take = 0
	}
	for ; n < len(events); n++ {
		if aside.Streams[events[n].Stream] {
			if int64(len(behind)) == aside.Room {
				break
			}
			behind = append(behind, events[n])
		} else {
			if len(handled) == take {
				break
			}
			handled = append(handled, events[n])
		}
	}
	return handled, behind, n
}
