package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/tenancy"
)

const (
	// fresh is for how long a follower returns what was read. It also bounds how long it returns an event that was
	// erased meanwhile.
	fresh = 5 * time.Second
	// pageBytes limits what a follower that is behind reads at once, beside eventlog.PageEvents.
	pageBytes = 1 << 20
	// tailEvents limits what a follower takes of the newest events at once. While its caller handles them, it keeps few
	// others in memory: those of the same reads share some memory.
	tailEvents = 64
)

// ReadAll is the method of a tenant, with hints: no event of the selected stream after opts.After has a version below
// fromVersion, and the caller needs no more than limit events.
type ReadAll func(ctx context.Context, opts event.ReadOptions, fromVersion int64, limit int) iter.Seq2[event.Envelope,
	error]

// Follow yields the settled events of a tenant that opts select, and waits for more, until ctx ends.
func (h *Hub) Follow(ctx context.Context, tenant string, opts event.ReadOptions,
	readAll ReadAll) iter.Seq2[event.Envelope, error] {
	return func(yield func(event.Envelope, error) bool) {
		f := follower{
			opts: opts, readAll: readAll, at: max(0, opts.After),
			delays: backoff.New(200*time.Millisecond, 5*time.Second),
		}
		if err := h.follow(ctx, tenant, &f, yield); err != nil {
			yield(event.Envelope{}, fmt.Errorf("follow the events of tenant %q: %w", tenant, err))
		}
	}
}

func (h *Hub) follow(ctx context.Context, tenant string, f *follower, yield func(event.Envelope, error) bool) error {
	if err := h.store.NotWithin(ctx); err != nil {
		return err
	}
	err := eventlog.ValidSelection(f.opts.Stream, f.opts.Types)
	if err != nil {
		return err
	}
	f.source, err = h.join(tenant)
	if err != nil {
		return err
	}
	defer h.leave(f.source)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The pool of a store is closed when its reads have ended.
	defer context.AfterFunc(h.life, func() { cancel(ErrClosed) })()
	return f.each(ctx, yield)
}

type follower struct {
	*source
	opts    event.ReadOptions
	readAll ReadAll
	delays  *backoff.Delays
	// at is the position up to which the events were yielded, or are not selected.
	at int64
	// version is the version of the last event of the selected stream, 0 if it is not known.
	version int64
	// average is the approximate size of an event in bytes, 0 if it is not known. It keeps statements from reading far
	// more than a page.
	average int
	// in is the incarnation of what was yielded. checked is the run in which at was found to be no higher than the
	// head.
	in      engine.Incarnation
	checked int
}

// page has events that follow each other.
type page struct {
	events []event.Envelope
	// to is the position up to which the page has all events.
	to    int64
	until time.Time // when the page is too old
	epoch int64
	// average is the average size of its events in bytes.
	average int
}

// each yields events until yield returns false.
func (f *follower) each(ctx context.Context, yield func(event.Envelope, error) bool) error {
	for {
		p, err := f.next(ctx)
		if err != nil {
			return err
		}
		whole := true
		for i, e := range p.events {
			whole = i == 0 || f.epoch.Load() == p.epoch && time.Now().Before(p.until)
			if !whole {
				break
			}
			if f.selects(e) {
				f.version = e.Version // of no use without a selected stream
				if !yield(e, e.Unreadable) {
					return nil
				}
			}
			f.at = e.Position
		}
		if whole {
			f.at = p.to
		}
	}
}

func (f *follower) selects(e event.Envelope) bool {
	return (f.opts.Stream == "" || f.opts.Stream == e.Stream) &&
		(len(f.opts.Types) == 0 || slices.Contains(f.opts.Types, e.Type))
}

// next waits for events. It waits out errors that end by themselves.
func (f *follower) next(ctx context.Context) (p page, err error) {
	for {
		st := f.state.Load()
		if ctx.Err() != nil {
			return p, context.Cause(ctx)
		}
		if st.err != nil {
			return p, st.err
		}
		if st.known {
			err = f.check(ctx, st)
			if err == nil && f.at < st.tail.Mark {
				p, err = f.take(ctx, st)
			}
		}
		switch {
		case errors.Is(err, event.ErrIncarnationChanged), errors.Is(err, tenancy.ErrRestored):
			return p, err
		case err != nil && f.hub.lasts(err) && ctx.Err() == nil:
			return p, err
		case err != nil:
			err = pause(ctx, f.delays.Next(), nil)
		case st.known && f.at < st.tail.Mark:
			f.delays.Reset()
			return p, nil
		default:
			err = pause(ctx, noWait, st.next)
		}
		if err != nil {
			return p, err
		}
	}
}

// check returns an error if events that were yielded may be gone. A mark below them is no sign of that: a tail that
// begins anew waits again for transactions that are open.
func (f *follower) check(ctx context.Context, st *state) error {
	switch {
	case f.in == 0:
		f.in = st.tail.Incarnation
	case f.in != st.tail.Incarnation:
		return f.changed()
	}
	if f.checked == st.run {
		return nil
	}
	if f.at > st.tail.Mark {
		// Whoever began a read for the same position knew its event.
		last, err := shared(ctx, f.hub, fmt.Sprintf("end %d %d %s", st.run, f.at, f.tenant),
			func(ctx context.Context) (end, error) {
				return f.hub.endOf(ctx, f.tenant)
			})
		switch {
		case err != nil:
			return err
		case last.in != f.in:
			return f.changed()
		case last.head < f.at:
			return fmt.Errorf("the last event is at %d, below %d: %w", last.head, f.at, tenancy.ErrRestored)
		}
	}
	f.checked = st.run
	return nil
}

func (f *follower) changed() error {
	return fmt.Errorf("events up to position %d may be gone: %w", f.at, event.ErrIncarnationChanged)
}

// take returns the next events up to the mark.
func (f *follower) take(ctx context.Context, st *state) (page, error) {
	w := st.tail
	until := w.Asked.Add(fresh)
	if f.at >= w.From && st.epoch == f.epoch.Load() && time.Now().Before(until) {
		first := sort.Search(len(w.Events), func(i int) bool { return w.Events[i].Position > f.at })
		p := page{events: w.Events[first:], to: w.Mark, until: until, epoch: st.epoch}
		if len(p.events) > tailEvents {
			p.events, p.to = p.events[:tailEvents], p.events[tailEvents-1].Position
		}
		p.events = slices.Clone(p.events)
		return p, nil
	}
	return f.readShared(ctx, w.Mark)
}

// readShared reads the next events, in a slot. Followers that need the same ones at the same time share a read.
func (f *follower) readShared(ctx context.Context, mark int64) (page, error) {
	key := fmt.Sprintf("%d %d %d %d %q %q %s", f.in, f.epoch.Load(), f.at, mark, f.opts.Types, f.opts.Stream, f.tenant)
	reads := *f
	p, err := shared(ctx, f.hub, key, func(ctx context.Context) (page, error) {
		limited, release, err := f.hub.readSlot(ctx)
		if err != nil {
			return page{}, err
		}
		defer release()
		return reads.read(limited, mark)
	})
	f.average = cmp.Or(p.average, f.average)
	return p, err
}

// read reads the next events up to a settled mark. The incarnation after the read is that of the read, and none of its
// events is gone if the head is not below the mark.
func (f *follower) read(ctx context.Context, mark int64) (page, error) {
	opts := f.opts
	opts.After = f.at
	p := page{to: mark, until: time.Now().Add(fresh), epoch: f.epoch.Load()}
	bytes, limit := 0, eventlog.PageEvents
	if f.average > 0 {
		limit = min(limit, max(1, pageBytes/f.average))
	}
	for e, err := range f.readAll(ctx, opts, f.version+1, limit) {
		if err != nil && e.Unreadable == nil {
			return page{}, err
		}
		if e.Position > mark {
			break
		}
		p.events = append(p.events, e)
		bytes += e.Size()
		if len(p.events) == limit || bytes >= pageBytes {
			p.to = e.Position
			break
		}
	}
	if len(p.events) > 0 {
		p.average = max(1, bytes/len(p.events))
	}
	last, err := f.hub.endOf(ctx, f.tenant)
	switch {
	case err != nil:
		return page{}, err
	case last.in != f.in:
		return page{}, f.changed()
	case last.head < mark:
		return page{}, fmt.Errorf("the last event is at %d, below %d: %w", last.head, mark, tenancy.ErrRestored)
	}
	return p, nil
}
