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
	// page gets the page, and is closed without one if the read failed.
	page   chan *engine.Page
	cancel context.CancelFunc
}

// prefetch begins to read a range if a slot is free at once and nothing is being read. An error does not matter: the
// range is read again when it is needed.
func (w *worker) prefetch(ctx context.Context, in engine.Incarnation, r *engine.ReadRange) {
	if r == nil || w.ahead.Load() != nil {
		return
	}
	release := w.deps.Limiter.tryRead(w.flow())
	if release == nil {
		return
	}
	reading, cancel := context.WithTimeout(w.deps.life, w.deps.Timing.QueryTimeout)
	a := &readAhead{after: r.After, incarnation: in, page: make(chan *engine.Page, 1), cancel: cancel}
	w.ahead.Store(a)
	if ctx.Err() != nil {
		cancel() // the actor may have stopped before it could see the read
	}
	w.deps.Own(func() {
		defer close(a.page)
		defer cancel()
		defer release()
		if page, err := w.read(reading, in, *r); err == nil {
			a.page <- &page
		}
	})
}

// keepAhead drops the read ahead unless it continues the buffer of the run.
func (w *worker) keepAhead(run machine.BatchRun) {
	if a := w.ahead.Load(); a != nil && (a.after != run.Buffer.To || a.incarnation != run.Lease.Incarnation) {
		a.cancel()
		w.ahead.Store(nil)
	}
}

// takeAhead waits for the read ahead. It returns nil if there is none, or if it failed.
func (w *worker) takeAhead() *engine.Page {
	a := w.ahead.Load()
	if a == nil {
		return nil
	}
	page := <-a.page
	w.ahead.Store(nil)
	return page
}

// page returns the page of the read ahead, or reads one.
func (w *worker) page(ctx context.Context, in engine.Incarnation, r engine.ReadRange) (engine.Page, error) {
	if page := w.takeAhead(); page != nil {
		return *page, nil
	}
	return w.read(ctx, in, r)
}
