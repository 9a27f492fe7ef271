package actors

import (
	"context"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
)

// readAhead is a read of events that goes on while batches are applied. It may last longer than the batch with which it
// began. Only jobs of the worker begin and take it.
type readAhead struct {
	after       int64
	incarnation engine.Incarnation
	// memory is what the projection needs with the page, in bytes.
	memory int
	// page gets the page, and is closed without one if the read failed.
	page   chan *engine.Page
	cancel context.CancelFunc
}

// prefetch begins to read a page if there is room for it, a slot is free at once, and nothing is being read. An error
// does not matter: the range is read again when it is needed.
func (w *worker) prefetch(ctx context.Context, in engine.Incarnation, p *machine.ReadPage) {
	if p == nil || w.fed.ahead.Load() != nil {
		return
	}
	release := w.deps.Limiter.tryRead(w.flow())
	if release == nil {
		return
	}
	if !w.hold(p.Memory) {
		release()
		return
	}
	reading, cancel := context.WithTimeout(w.deps.life, w.deps.Timing.QueryTimeout)
	a := &readAhead{after: p.Range.After, incarnation: in, memory: p.Memory, page: make(chan *engine.Page, 1),
		cancel: cancel}
	w.fed.ahead.Store(a)
	if ctx.Err() != nil {
		cancel() // the actor may have stopped before it could see the read
	}
	w.deps.Own(func() {
		defer close(a.page)
		defer cancel()
		defer release()
		if page, err := w.read(reading, in, p.Range); err == nil {
			a.page <- &page
		}
	})
}

// keepAhead drops the read ahead unless it continues the buffer of the run.
func (w *worker) keepAhead(run machine.BatchRun) {
	if a := w.fed.ahead.Load(); a != nil && (a.after != run.Buffer.To || a.incarnation != run.Lease.Incarnation) {
		w.fed.dropAhead()
	}
}

// dropAhead drops the read ahead, if there is one.
func (i *intake) dropAhead() {
	if a := i.ahead.Swap(nil); a != nil {
		a.cancel()
	}
}

// takeAhead waits for the read ahead. It returns nil if there is none, or if it failed.
func (w *worker) takeAhead() *engine.Page {
	a := w.fed.ahead.Load()
	if a == nil {
		return nil
	}
	page := <-a.page
	w.fed.ahead.Store(nil)
	return page
}

// page returns the page of the read ahead, or reads one.
func (w *worker) page(ctx context.Context, in engine.Incarnation, p machine.ReadPage) (engine.Page, error) {
	if page := w.takeAhead(); page != nil {
		return *page, nil
	}
	if !w.hold(p.Memory) {
		p.Range.Limit = min(p.Range.Limit, p.Least)
	}
	return w.read(ctx, in, p.Range)
}

// hold makes the projection hold that many bytes of the node's room for events, and reports whether there was room.
func (w *worker) hold(bytes int) bool { return w.deps.shared.ahead.hold(&w.fed.held, bytes) }

// keep holds room for the events that are in memory after a batch: those of the buffer, unless all were handled, and of
// the next page. It reports whether there was room.
func (w *worker) keep(buffer int, next *engine.Page) bool {
	memory := buffer
	switch a := w.fed.ahead.Load(); {
	case next != nil:
		memory += next.Size()
	case a != nil:
		memory = max(memory, a.memory)
	}
	if w.hold(memory) {
		return true
	}
	w.hold(0)
	return false
}

// forget drops the read ahead, and frees the room: no event is in memory, and no job is in progress.
func (w *worker) forget() {
	w.fed.dropAhead()
	if w.fed.held.bytes > 0 {
		w.hold(0)
	}
}
