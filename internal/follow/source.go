package follow

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/window"
	"github.com/millrace-go/millrace/tenancy"
)

const (
	// windowEvents and windowBytes limit what a source keeps. A follower that is further behind reads for itself.
	windowEvents = 2048
	windowBytes  = 4 << 20
	// knownFor is for how long a source need not read for a position that it has settled. An announcement of an older
	// position is a reason to read: the tenant may have been restored to an earlier state.
	knownFor = time.Second
)

// source settles the end of one tenant's events for all followers of the tenant in this process.
type source struct {
	hub    *Hub
	tenant string
	cancel context.CancelFunc
	// followers belongs to the hub's lock.
	followers int
	// woken has an element after a wake. wanted is the highest position that wakes have announced.
	woken  chan struct{}
	wanted atomic.Int64
	// feed is what the runtime of this process has read, nil if it does not read the tenant.
	feed atomic.Pointer[engine.Tail]
	// epoch counts the calls of Drop.
	epoch atomic.Int64
	// ended is the error with which others end the followers, nil if they do not.
	ended atomic.Pointer[error]
	// row is the key of the tenant. It is set before the first state is published.
	row   atomic.Int32
	state atomic.Pointer[state]
}

// state is what followers see. It does not change.
type state struct {
	tail engine.Tail
	// known reports that tail is set. epoch is the source's epoch when its events were read.
	known bool
	epoch int64
	// run changes when the events begin anew. Within a run, the mark only rises.
	run int
	// err ends all followers.
	err error
	// next is closed when there is another state.
	next chan struct{}
}

func newSource(h *Hub, tenant string, cancel context.CancelFunc) *source {
	s := &source{hub: h, tenant: tenant, cancel: cancel, woken: make(chan struct{}, 1)}
	s.state.Store(&state{next: make(chan struct{})})
	return s
}

// wake makes the source look for events up to a position. It does not block.
func (s *source) wake(position int64) {
	for before := s.wanted.Load(); position > before && !s.wanted.CompareAndSwap(before, position); {
		before = s.wanted.Load()
	}
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// endWith ends the followers with an error that lasts. It does not block.
func (s *source) endWith(err error) {
	s.ended.CompareAndSwap(nil, &err)
	s.wake(engine.UnknownPosition)
}

func (s *source) publish(next state) {
	next.next = make(chan struct{})
	close(s.state.Swap(&next).next)
}

// run settles events until ctx ends, or until an error lasts.
func (s *source) run(ctx context.Context) {
	r := reader{source: s}
	delays := backoff.New(200*time.Millisecond, 5*time.Second)
	for ctx.Err() == nil {
		pause, err := r.step(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			delays.Reset()
			r.wait(ctx, pause)
		case s.hub.lasts(err):
			s.hub.forget(s) // the next follower gets a new source
			s.publish(state{err: err})
			return
		default:
			s.hub.log.Warn("the end of a followed tenant cannot be read, retrying", zap.String("tenant", s.tenant),
				zap.Error(err))
			_ = delays.Wait(ctx)
		}
	}
}

// reader is what only the goroutine of a source uses.
type reader struct {
	*source
	identified bool // row is set
	// poller is nil before it begins, and while the runtime's feed is used.
	poller engine.TailPoller
	in     engine.Incarnation
	window window.Window
	polled time.Time // when the last poll began
	// feeds is the tail of the runtime that was published last, and epochRead the epoch of what was read.
	feeds     *engine.Tail
	epochRead int64
	// runs counts the runs.
	runs int
}

// step publishes what is known now. It returns the pause before the next poll.
func (r *reader) step(ctx context.Context) (time.Duration, error) {
	epoch := r.epoch.Load()
	if ended := r.ended.Load(); ended != nil {
		return 0, *ended
	}
	if !r.identified {
		row, err := r.hub.row(ctx, r.tenant)
		if err != nil {
			return 0, err
		}
		r.row.Store(row)
		r.identified = true
	}
	if feed := r.feed.Load(); feed != nil {
		r.useFeed(feed, epoch)
		return noWait, nil
	}
	if r.poller == nil {
		r.poller, r.in, r.feeds = r.hub.store.TailPoller(r.tenant), 0, nil
		r.poller.ReadWithin(r.hub.readSlot)
	}
	if epoch != r.epochRead {
		r.window.Reset(r.window.Mark)
	}
	r.polled, r.epochRead = time.Now(), epoch
	u, err := r.poller.Poll(ctx)
	if err != nil {
		r.poller = nil
		return 0, err
	}
	if u.Gone && u.Incarnation == r.in {
		return 0, fmt.Errorf("events up to position %d are gone: %w", r.window.Mark, tenancy.ErrRestored)
	}
	if u.Incarnation != r.in || u.From != r.window.Mark { // a mark may also be found without a read
		r.in = u.Incarnation
		r.runs++
		r.window.Reset(u.From)
	}
	r.window.Add(u.Events, u.Mark, u.Bytes, r.polled, time.Now())
	r.window.Limit(windowEvents, windowBytes)
	r.window.DropReadBefore(time.Now().Add(-fresh))
	_, asked, _ := r.window.Oldest()
	r.show(engine.Tail{
		Incarnation: r.in, Mark: r.window.Mark, From: r.window.From, Events: r.window.Events, Asked: asked,
	})
	switch {
	case u.More:
		return 0, nil
	case u.Again > 0:
		return u.Again, nil
	}
	return noWait, nil
}

// useFeed publishes what the runtime has read.
func (r *reader) useFeed(feed *engine.Tail, epoch int64) {
	if feed == r.feeds && epoch == r.epochRead {
		return
	}
	before, t := r.state.Load(), *feed
	if r.feeds == nil || t.Incarnation != before.tail.Incarnation || t.Mark < before.tail.Mark {
		r.poller = nil
		r.window.Reset(0)
		r.runs++
	}
	if epoch != r.epochRead { // it may have been read before the erasure
		t.From, t.Events = t.Mark, nil
	}
	r.feeds, r.epochRead = feed, epoch
	r.show(t)
}

// show publishes a tail, if it has changed.
func (r *reader) show(t engine.Tail) {
	before := r.state.Load()
	if before.known && before.run == r.runs && before.epoch == r.epochRead && before.tail.From == t.From &&
		before.tail.Mark == t.Mark {
		return
	}
	r.publish(state{known: true, run: r.runs, epoch: r.epochRead, tail: t})
}

// wait waits for a wake with news, or until the pause is over.
func (r *reader) wait(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var old <-chan time.Time
	if read, _, holds := r.window.Oldest(); holds {
		aging := time.NewTimer(time.Until(read.Add(fresh)))
		defer aging.Stop()
		old = aging.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-old: // a poll drops them
			return
		case <-r.woken:
			if wanted := r.wanted.Swap(0); wanted > r.window.Mark || time.Since(r.polled) > knownFor ||
				pause != noWait {
				return
			}
		}
	}
}
