package actors

import (
	"context"
	"slices"
	"sort"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// ahead holds the events that a projection is to handle next: all that concern it beyond its position, up to to. They
// come from the feed's shared tail, or from a read of the projection's own while it is further behind.
type ahead struct {
	events []event.Envelope
	to     int64
	// average is about how many bytes an event has, so that few are read in vain.
	average int
}

const (
	// firstRead is how many events are read while their size is not known.
	firstRead = 200
	// readBatches is how many batches' worth of events one read gets.
	readBatches = 4
	// scanMost bounds how many positions one read looks through for events of a few types.
	scanMost = 100_000
)

// window returns the events that a batch may cover by the projection's bounds.
func (a *ahead) window(def *engine.Definition) []event.Envelope {
	n, bytes := 0, 0
	for n < min(len(a.events), def.MaxEvents) {
		bytes += a.events[n].Size()
		if n > 0 && bytes > def.MaxBytes {
			break
		}
		n++
	}
	return a.events[:n:n]
}

// take returns the next batch: of the window, what the sizing allows. full tells that there is none, since its first event
// would have to be parked, and too many are.
func (a *ahead) take(def *engine.Definition, sizing machine.BatchSizer, aside machine.ParkedStreams) (batch engine.Batch, full bool) {
	handled, behind, n := sizing.Split(a.window(def), aside)
	batch = engine.Batch{Events: handled, BlockedByStream: behind, To: a.to}
	if n == 0 {
		return batch, true
	}
	if n < len(a.events) {
		batch.To = a.events[n-1].Position
	}
	return batch, false
}

// passed drops what is at or below position.
func (a *ahead) passed(position int64) {
	for len(a.events) > 0 && a.events[0].Position <= position {
		a.events = a.events[1:]
	}
	if len(a.events) == 0 {
		a.events = nil // an empty slice would keep the whole page in memory
	}
	a.to = max(a.to, position)
}

// add appends a page that begins where a ends.
func (a *ahead) add(page engine.Page) {
	if len(page.Events) > 0 {
		bytes := 0
		for i := range page.Events {
			bytes += page.Events[i].Size()
		}
		a.average = max(1, bytes/len(page.Events))
	}
	if len(a.events) == 0 {
		a.events = page.Events
	} else {
		a.events = append(slices.Clip(a.events), page.Events...)
	}
	a.to = page.To
}

// rangeAfter is what to read next, up to mark.
func (a *ahead) rangeAfter(def *engine.Definition, mark int64) engine.ReadRange {
	r := engine.ReadRange{After: a.to, UpTo: mark, Types: def.Types, Limit: readBatches * def.MaxEvents, MaxBytes: max(1, def.MaxBytes)}
	if a.average == 0 {
		r.Limit = min(r.Limit, firstRead)
	} else {
		r.Limit = min(r.Limit, max(1, def.MaxBytes/a.average))
	}
	if len(def.Types) > 0 {
		r.UpTo = min(mark, a.to+scanMost)
	}
	return r
}

// fromTail takes what the shared tail has beyond a, and tells whether the tail reaches back far enough for that.
func (p *projector) fromTail() bool {
	if p.ahead.to < p.from || p.ahead.to >= p.mark {
		return false
	}
	first := sort.Search(len(p.window), func(i int) bool { return p.window[i].Position > p.ahead.to })
	events := p.window[first:len(p.window):len(p.window)]
	if len(p.def.Types) > 0 {
		var concerned []event.Envelope
		for i := range events {
			if p.def.Concerns(events[i].Type) {
				concerned = append(concerned, events[i])
			}
		}
		events = concerned
	}
	p.ahead.add(engine.Page{Events: events, To: p.mark})
	p.dropWindow()
	return true
}

// read reads a page of the projection's own, in the incarnation of the server in which its lease was read.
func (p *projector) read(ctx context.Context, lease engine.Lease, r engine.ReadRange) (engine.Page, error) {
	page, err := p.env.Store.Read(ctx, lease.ID.Tenant, r)
	if err == nil && page.Incarnation != lease.Incarnation {
		err = projection.ErrIncarnationChanged
	}
	return page, err
}
