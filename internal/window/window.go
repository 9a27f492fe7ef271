// Package window keeps the newest events of a tenant in memory, for readers that have not taken them yet.
package window

import (
	"slices"
	"time"
	"unsafe"

	"github.com/millrace-go/millrace/event"
)

// Window holds the newest settled events of a tenant: all with From < position <= Mark. Slices of Events that were
// given away do not change: elements are only added after their ends. The zero value is empty.
type Window struct {
	From, Mark int64
	Events     []event.Envelope
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

// Reset empties the window, which then begins and ends at mark.
func (w *Window) Reset(mark int64) { *w = Window{From: mark, Mark: mark} }

// Add appends a page that begins where the window ends. bytes is the memory that the events refer to.
func (w *Window) Add(events []event.Envelope, mark int64, bytes int, asked, now time.Time) {
	w.Mark = mark
	if len(events) == 0 {
		return
	}
	before := cap(w.Events)
	w.Events = append(w.Events, events...)
	if cap(w.Events) != before {
		w.dropped, w.droppedBytes = 0, 0 // the array is a new one
	}
	w.pages = append(w.pages, page{to: events[len(events)-1].Position,
		events: len(events), bytes: bytes, read: now, asked: asked})
	w.bytes += bytes
	for i := len(w.pages) - 2; i >= 0 && asked.Before(w.pages[i].asked); i-- {
		w.pages[i].asked = asked
	}
}

// drop removes the oldest pages until old returns false. It reports whether there were any.
func (w *Window) drop(old func(p page) bool) bool {
	before := len(w.pages)
	for len(w.pages) > 0 && old(w.pages[0]) {
		p := w.pages[0]
		w.pages, w.Events, w.From = w.pages[1:], w.Events[p.events:], p.to
		w.bytes -= p.bytes
		w.dropped, w.droppedBytes = w.dropped+p.events, w.droppedBytes+p.bytes
	}
	switch {
	case len(w.pages) == before:
		return false
	case len(w.pages) == 0:
		w.Reset(w.Mark)
	case w.dropped > len(w.Events), w.droppedBytes > w.bytes:
		w.compact() // copying once half of it is dropped costs little for each event
	}
	return true
}

// compact moves the events to an array of their own, so that the memory of dropped events can be freed.
func (w *Window) compact() {
	w.Events, w.pages = slices.Clip(slices.Clone(w.Events)), slices.Clone(w.pages)
	w.dropped, w.droppedBytes = 0, 0
}

// DropPassed drops the pages up to position. It reports whether there were any.
func (w *Window) DropPassed(position int64) bool {
	return w.drop(func(p page) bool { return p.to <= position })
}

// DropReadBefore drops the pages that were read before t. It reports whether there were any.
func (w *Window) DropReadBefore(t time.Time) bool {
	return w.drop(func(p page) bool { return p.read.Before(t) })
}

// Limit drops the oldest pages until the window holds at most that many events and bytes.
func (w *Window) Limit(events, bytes int) {
	w.drop(func(page) bool { return len(w.Events) > events || w.bytes+len(w.Events)*envelopeBytes > bytes })
	if w.Size() > bytes {
		w.compact()
	}
}

// Size is how many bytes the window keeps from being freed.
func (w *Window) Size() int {
	return w.bytes + w.droppedBytes + (w.dropped+cap(w.Events))*envelopeBytes
}

// Oldest returns when the oldest page was read, and the earliest time at which a read of the window began. It reports
// false for an empty window.
func (w *Window) Oldest() (read, asked time.Time, found bool) {
	if len(w.pages) == 0 {
		return time.Time{}, time.Time{}, false
	}
	return w.pages[0].read, w.pages[0].asked, true
}
