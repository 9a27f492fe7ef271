package eventlog

const (
	// TailEvents and TailBytes bound one read of a tail.
	TailEvents = 2000
	TailBytes  = 4 << 20
	// tailFirst bounds it while the size of the events is not known.
	tailFirst = 250
)

// EventSize is the approximate size of the events of a tail in bytes, 0 while it is not known.
type EventSize int

// Limit returns how many events a tail reads at once.
func (s EventSize) Limit() int {
	if s == 0 {
		return tailFirst
	}
	return min(TailEvents, max(1, TailBytes/int(s)))
}

// Read sets the size by the events that were read.
func (s *EventSize) Read(events, bytes int) {
	if events > 0 {
		*s = EventSize(max(1, bytes/events))
	}
}
