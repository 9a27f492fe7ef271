package pgstore

import (
	"slices"
	"strings"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

// lettersModel is what dead letters are, said as simply as possible: events are dealt with one after another, and nothing fails
// but the poison.
type lettersModel struct {
	events     []event.Envelope
	poison     map[int64]projection.Action // what becomes of it at first
	checkpoint int64
	applied    []int64
	parked     map[int64]*modelLetter
	streams    map[string]bool
	commands   []*modelCommand // those that are open
}

type modelLetter struct {
	behind          bool
	err             string
	attempts, begun int
}

type modelCommand struct {
	replay       bool
	positions    []int64 // none means any
	stream, text string
	most         int64
	done, failed int64
	after        int64
	whole        string // the parked stream that is being replayed
	replaying    int64  // the letter that was begun last, unless it is known how that ended
	letters      map[int64]bool
	streams      map[string]bool
}

// pass deals with the live events up to a position.
func (m *lettersModel) pass(to int64) {
	for _, e := range m.events {
		if e.Position <= m.checkpoint || e.Position > to {
			continue
		}
		action, bad := m.poison[e.Position]
		switch {
		case m.streams[e.Stream]:
			m.parked[e.Position] = &modelLetter{behind: true, err: blockedError}
		case bad:
			m.parked[e.Position] = &modelLetter{err: errBad.Error(), attempts: 1}
			if action == projection.ActionParkStream {
				m.streams[e.Stream] = true
			}
		default:
			m.applied = append(m.applied, e.Position)
		}
	}
	m.checkpoint = to
}

func (m *lettersModel) stream(position int64) string {
	i := slices.IndexFunc(m.events, func(e event.Envelope) bool { return e.Position == position })
	return m.events[i].Stream
}

// order are the positions of what is parked, in order: of one stream, where one is given.
func (m *lettersModel) order(stream string) (positions []int64) {
	for p := range m.parked {
		if stream == "" || m.stream(p) == stream {
			positions = append(positions, p)
		}
	}
	slices.Sort(positions)
	return positions
}

func (m *lettersModel) selects(c *modelCommand, position int64) bool {
	return (len(c.positions) == 0 || slices.Contains(c.positions, position)) && (c.stream == "" || c.stream == m.stream(position)) &&
		strings.Contains(m.parked[position].err, c.text)
}

// next is what a command replays next, and begins it; 0 means nothing, which ends it.
func (m *lettersModel) next(c *modelCommand, lived bool) (position int64) {
	defer func() {
		if position == 0 {
			m.end(c)
			return
		}
		if c.replaying != position {
			m.putBack(c)
		}
		c.replaying = position
		if l := m.parked[position]; l.begun == 0 || !lived {
			l.begun++
		}
		c.letters[position] = true
	}()
	if c.done+c.failed >= c.most {
		return 0
	}
	if c.whole != "" {
		return m.order(c.whole)[0]
	}
	for _, p := range m.order("") {
		stream := m.stream(p)
		tried := c.letters[p] && m.parked[p].begun == 0
		if m.streams[stream] {
			tried = c.streams[stream]
		}
		if p <= c.after || tried || !m.selects(c, p) {
			continue
		}
		c.after = p - 1
		if m.streams[stream] {
			c.streams[stream], c.whole = true, stream
			return m.order(stream)[0]
		}
		return p
	}
	return 0
}

// putBack parks the letter again that a command began and does not go on with.
func (m *lettersModel) putBack(c *modelCommand) {
	if l := m.parked[c.replaying]; l != nil {
		l.begun = 0
	}
}

func (m *lettersModel) end(c *modelCommand) {
	m.putBack(c)
	if c.whole != "" {
		m.parked[m.order(c.whole)[0]].behind = false
	}
	m.commands = slices.DeleteFunc(m.commands, func(x *modelCommand) bool { return x == c })
}

func (m *lettersModel) succeeds(c *modelCommand, position int64) {
	c.done, c.replaying = c.done+1, 0
	m.applied = append(m.applied, position)
	m.forget(position)
}

func (m *lettersModel) fails(c *modelCommand, position int64, err error) {
	c.failed++
	c.whole, c.replaying = "", 0
	l := m.parked[position]
	l.behind, l.begun, l.err, l.attempts = false, 0, err.Error(), l.attempts+1
}

// forget takes a letter away, and its stream with the last one.
func (m *lettersModel) forget(position int64) {
	stream := m.stream(position)
	delete(m.parked, position)
	if !m.streams[stream] || len(m.order(stream)) > 0 {
		return
	}
	delete(m.streams, stream)
	for _, c := range m.commands {
		delete(c.streams, stream)
		if c.whole == stream {
			c.whole = ""
		}
	}
}

func (m *lettersModel) discard(c *modelCommand) (n int64) {
	var gone []int64
	for _, p := range m.order("") {
		if m.selects(c, p) && int64(len(gone)) < c.most {
			gone = append(gone, p)
		}
	}
	for _, p := range gone {
		stream := m.stream(p)
		m.forget(p)
		if m.streams[stream] {
			m.parked[m.order(stream)[0]].behind = false
		}
	}
	m.end(c)
	return int64(len(gone))
}
