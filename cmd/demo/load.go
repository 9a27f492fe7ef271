package main

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace/event"
)

// queued is how many events may wait for one writer, so that one slow append does not block the others.
const queued = 128

// load appends the workload as a live system does: one event in each append, with concurrent writers. Each stream
// belongs to one writer, which expects its version, so that an append out of order is refused.
type load struct {
	store    database
	total    int64
	rate     int
	seed     maphash.Seed
	queues   []chan record
	appended atomic.Int64
	last     atomic.Int64 // the highest position
}

func newLoad(store database, events int64, o options) *load {
	l := &load{
		store: store, total: events, rate: o.rate, seed: maphash.MakeSeed(), queues: make([]chan record, o.writers),
	}
	for i := range l.queues {
		l.queues[i] = make(chan record, queued)
	}
	return l
}

// run appends all events of the source.
func (l *load) run(ctx context.Context, from source) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, queue := range l.queues {
		group.Go(func() error { return l.write(ctx, queue) })
	}
	group.Go(func() error {
		for _, queue := range l.queues {
			defer close(queue)
		}
		return l.distribute(ctx, from)
	})
	return group.Wait()
}

// distribute sends the events to the writers of their streams, at the requested rate.
func (l *load) distribute(ctx context.Context, from source) error {
	start := time.Now()
	var n int64
	for r, err := range from {
		if err != nil {
			return err
		}
		if l.rate > 0 {
			if err := waitUntil(ctx, start.Add(time.Duration(n)*time.Second/time.Duration(l.rate))); err != nil {
				return err
			}
		}
		select {
		case l.queues[maphash.String(l.seed, r.stream)%uint64(len(l.queues))] <- r:
			n++
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (l *load) write(ctx context.Context, queue <-chan record) error {
	versions := make(map[string]int64)
	for r := range queue {
		result, err := l.store.Append(ctx, r.stream, event.Exact(versions[r.stream]), r.event)
		if err != nil {
			return err
		}
		versions[r.stream] = result.Version
		l.appended.Add(1)
		position := result.Positions[0]
		for old := l.last.Load(); position > old && !l.last.CompareAndSwap(old, position); old = l.last.Load() {
		}
	}
	return nil
}

// progress returns how far the load is, for people.
func (l *load) progress(start time.Time) string {
	n, took := l.appended.Load(), time.Since(start)
	return fmt.Sprintf("appended %d of %d events in %.1f s, %.0f/s", n, l.total, took.Seconds(), perSecond(n, took))
}

func waitUntil(ctx context.Context, due time.Time) error {
	wait := time.Until(due)
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
