package machine

import (
	"slices"
	"sort"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
)

type events = []event.Envelope

const (
	// firstRead is how many events are read while their size is not known.
	firstRead = 200
	// readBatches is how many batches of events one read gets. The next read begins when fewer are left: with set-based
	// handlers, reading takes longer than applying.
	readBatches = 4
	// maxScan bounds how many positions one read scans for events of a few types, or of one partition.
	maxScan = 100_000
)

// Buffer is the read-ahead buffer. It holds all events of the projection after its position and up to To. They come
// from the feed's shared tail, or from a read of the projection's own while it is further behind.
type Buffer struct {
	Events events
	To     int64
	// average is the average size of an event in bytes, as last read. Zero means that it is not known.
	average int
	// size is the size of the pages in memory that the projection has read for itself, in bytes. The feed's events are
	// shared.
	size int
}

// add appends a page that begins where the buffer ends. It never writes to the old slice, which other machines may
// share.
func (b Buffer) add(page engine.Page) Buffer {
	bytes := page.Size()
	if len(page.Events) != 0 {
		b.average = max(1, bytes/len(page.Events))
	}
	if len(b.Events) == 0 {
		b.Events, b.size = page.Events, bytes
	} else {
		b.size += bytes
		b.Events = append(slices.Clip(b.Events), page.Events...)
	}
	b.To = page.To
	return b
}

// memory returns how much memory the projection's own events take, in bytes, once this many more have been read.
func (b Buffer) memory(more int64) int { return b.size + int(more)*b.average }

// passed drops the events at or below position.
func (b Buffer) passed(position int64) Buffer {
	n := sort.Search(len(b.Events), func(i int) bool { return b.Events[i].Position > position })
	b.Events = b.Events[n:]
	if len(b.Events) == 0 {
		b.Events, b.size = nil, 0 // an empty slice would keep the whole page in memory
	}
	b.To = max(b.To, position)
	return b
}

// window returns the events that a batch of at most this many may cover by the projection's bounds.
func (b Buffer) window(def *engine.Definition, most int) events {
	n, bytes := 0, 0
	for n < min(len(b.Events), most) {
		bytes += b.Events[n].Size()
		if n > 0 && bytes > def.MaxBytes {
			break
		}
		n++
	}
	return b.Events[:n:n]
}

// next returns the range to read next, up to mark, for batches of at most this many events.
func (b Buffer) next(def *engine.Definition, most int, share partition.Share, mark int64) engine.ReadRange {
	r := engine.ReadRange{After: b.To, UpTo: mark, Types: def.Types, Share: share,
		Limit: readBatches * most, MaxBytes: max(1, def.MaxBytes)}
	if b.average == 0 {
		r.Limit = min(r.Limit, firstRead)
	} else {
		r.Limit = min(r.Limit, max(1, def.MaxBytes/b.average))
	}
	if len(def.Types) != 0 || !share.Whole() {
		r.UpTo = min(mark, b.To+maxScan)
	}
	return r
}

// fromTail adds the events that the shared tail has after the buffer's end, if the tail reaches back far enough.
func (b Buffer) fromTail(def *engine.Definition, share partition.Share, t *Tail) (Buffer, bool) {
	if b.To < t.From || b.To >= t.Mark {
		return b, false
	}
	first := sort.Search(len(t.Events), func(i int) bool { return t.Events[i].Position > b.To })
	page := engine.Page{Events: t.Events[first:len(t.Events):len(t.Events)], To: t.Mark}
	if len(def.Types) != 0 || !share.Whole() {
		shared := page.Events
		page.Events = nil // the buffer holds memory for the projection's own events only
		for i := range shared {
			if def.Concerns(shared[i].Type) && share.Has(shared[i].Stream, shared[i].Position) {
				page.Events = append(page.Events, shared[i])
			}
		}
	}
	own := b.size
	b = b.add(page)
	b.size = own
	return b, true
}

// dropped returns the tail without its shared events, which are freed when no projection needs them. What lies below
// the mark must be read then: an empty slice must not be taken for a range without events.
func (t *Tail) dropped() *Tail {
	if t == nil || t.Err != nil || t.From == t.Mark && t.Events == nil {
		return t
	}
	return &Tail{Incarnation: t.Incarnation, Mark: t.Mark, From: t.Mark}
}
