package machine

import "strings"

// The most parked streams that a projection keeps in memory, by number and by the bytes of their ids. If there are
// more, each batch asks which of its own streams are parked.
const (
	mostParkedStreams = 1000
	mostParkedBytes   = 64 << 10
)

// ParkedStreams are the parked streams of a projection, as its owner knows them. nil means that they were not read yet.
// Only the holder of the lease changes them, and a stream is parked in the transaction that moves the checkpoint over
// its event. So they are right while the fence holds the epoch and the checkpoint: they are forgotten whenever the row
// is read again, and after each command on dead letters. They are replaced and never changed, since a run may have
// them.
type ParkedStreams struct {
	ids map[string]bool
	// tooMany means that ids has not all of them.
	tooMany bool
}

// parkedStreams returns the parked streams of a projection. ids are all of them, or more than a projection keeps in
// memory.
func parkedStreams(ids []string) *ParkedStreams {
	p := &ParkedStreams{ids: make(map[string]bool, len(ids))}
	bytes := 0
	for _, id := range ids {
		p.ids[id] = true
		bytes += len(id)
	}
	if len(ids) > mostParkedStreams || bytes > mostParkedBytes {
		return &ParkedStreams{tooMany: true}
	}
	return p
}

// known reports whether all parked streams are in memory.
func (p *ParkedStreams) known() bool { return p != nil && !p.tooMany }

// with returns the parked streams with one more. If they are not known, it returns them as they are.
func (p *ParkedStreams) with(id string) *ParkedStreams {
	if !p.known() {
		return p
	}
	ids := []string{id}
	for other := range p.ids {
		if other != id {
			ids = append(ids, other)
		}
	}
	return parkedStreams(ids)
}

// parkedStream records that a stream was parked. If none was before, this is the only one.
func (m *Machine) parkedStream(id string) {
	if !m.Lease.ParkedStreams {
		m.Replays.Parked = parkedStreams(nil)
	}
	// The id of an event shares its memory with others of the page.
	m.Lease.ParkedStreams, m.Replays.Parked = true, m.Replays.Parked.with(strings.Clone(id))
}
