package actors

import (
	"slices"
	"time"
	"unsafe"

	"github.com/millrace-go/millrace/event"
)

// window holds the newest events of a feed, for projections that have not taken them yet: all with from < position <= mark.
// Slices that were sent to projections do not change: elements are only added after their ends.
type window struct {
	from, mark int64
	events     []event.Envelope
	pages      []page
	// dropped counts the events that the array of events holds before its beginning. droppedBytes is their memory.
	dropped      int
	droppedBytes int
	bytes        int // of pages
}

// page is the result of one read. Its events share memory, so they are dropped together.
type page struct {
	to     int64
	events int
	bytes  int
	read   time.Time
	// asked is when the read began. No later page has an earlier one.
	asked time.Time
}

const envelopeBytes = int(unsafe.Sizeof(event.Envelope{}))

// reset empties the window, which then begins and ends at mark.
func (w *window) reset(mark int64) { *w = window{from: mark, mark: mark} }

// add appends a page that begins where the window ends. bytes is the memory that the events refer to.
func (w *window) add(events []event.Envelope, mark int64, bytes int, asked, now time.Time) {
	w.mark = mark
	if len(events) == 0 {
		return
	}
	before := cap(w.events)
	w.events = append(w.events, events...)
	if cap(w.events) != before {
		w.dropped, w.droppedBytes = 0, 0 // the array is a new one
	}
	w.pages = append(w.pages, page{to: events[len(events)-1].Position, events: len(events), bytes: bytes, read: now, asked: asked})
	w.bytes += bytes
	for i := len(w.pages) - 2; i >= 0 && asked.Before(w.pages[i].asked); i-- {
		w.pages[i].asked = asked
	}
}

// drop removes the oldest pages until old returns false. It reports whether there were any.
func (w *window) drop(old func(p page) bool) bool {
	before := len(w.pages)
	for len(w.pages) > 0 && old(w.pages[0]) {
		p := w.pages[0]
		w.pages, w.events, w.from = w.pages[1:], w.events[p.events:], p.to
		w.bytes -= p.bytes
		w.dropped, w.droppedBytes = w.dropped+p.events, w.droppedBytes+p.bytes
	}
	switch {
	case len(w.pages) == before:
		return false
	case len(w.pages) == 0:
		w.reset(w.mark)
	case w.dropped > len(w.events), w.droppedBytes > w.bytes:
		w.compact() // copying once half of it is dropped costs little for each event
	}
	return true
}

// compact moves the events to an array of their own, so that the memory of dropped events can be freed.
func (w *window) compact() {
	w.events, w.pages = slices.Clip(slices.Clone(w.events)), slices.Clone(w.pages)
	w.dropped, w.droppedBytes = 0, 0
}

// passed drops the pages up to position. It reports whether there were any.
func (w *window) passed(position int64) bool {
	return w.drop(func(p page) bool { return p.to <= position })
}

// readBefore drops the pages that were read before t. It reports whether there were any.
func (w *window) readBefore(t time.Time) bool {
	return w.drop(func(p page) bool { return p.read.Before(t) })
}

// limit drops the oldest pages until the window holds at most that many events and bytes.
func (w *window) limit(events, bytes int) {
	w.drop(func(page) bool { return len(w.events) > events || w.bytes+len(w.events)*envelopeBytes > bytes })
	if w.size() > bytes {
		w.compact()
	}
}

// size is how many bytes the window keeps from being freed.
func (w *window) size() int {
	return w.bytes + w.droppedBytes + (w.dropped+cap(w.events))*envelopeBytes
}
