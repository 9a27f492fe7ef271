package eventlog

const (
	// TailEvents and TailBytes bound one read of a tail.
	TailEvents = 2000
	TailBytes  = 4 << 20
	// tailFirst bounds it while the size of the events is not known.
	tailFirst = 250
)

// EventSize is the approximate size in bytes of one event of a tail, 0 while it is not known.
type EventSize int

// Limit returns how many events a tail reads at once.
func (s EventSize) Limit() int {
	if s == 0 {
		return tailFirst
	}
	return min(TailEvents, max(1, TailBytes/int(s)))
}

// Observe sets the size by the events that were read.
func (s *EventSize) Observe(events, bytes int) {
	if events > 0 {
		*s = EventSize(max(1, bytes/events))
	}
}
