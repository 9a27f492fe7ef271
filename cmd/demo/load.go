package main

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace/event"
)

const (
	// queued is how many events wait for one writer: enough that one slow append does not stop the others.
	queued = 128
	// samples is about how many appends are timed under load.
	samples = 2000
	// mostAtRest bounds the events that are kept back to be appended one at a time.
	mostAtRest = 200
)

type appender interface {
	Append(ctx context.Context, stream string, expected event.Expected, events ...event.Event) (event.Appended, error)
}

// load appends the workload as a live system does: one event an append, many at once, and those of a stream in order.
// Each stream belongs to one writer, which names the version that it expects, so that an append that came out of order
// would be refused.
type load struct {
	store    appender
	probe    *probe // nil where no times are taken
	fault    *fault
	total    int64
	rate     int
	seed     maphash.Seed
	writers  []writer
	appended atomic.Int64
	// last is the position of the last event that concerns each of the read models.
	last []atomic.Int64

	next func() (record, error, bool)
}

// writer knows how far its streams are; that is all that grows with the workload.
type writer struct{ versions map[string]int64 }

func newLoad(store appender, p *probe, f *fault, events int64, o options) *load {
	l := &load{store: store, probe: p, fault: f, total: events, rate: o.rate, seed: maphash.MakeSeed(),
		writers: make([]writer, o.writers), last: make([]atomic.Int64, len(readModels))}
	for i := range l.writers {
		l.writers[i].versions = make(map[string]int64)
	}
	return l
}

// open begins to read the source; the function that it returns ends that.
func (l *load) open(from source) (stop func()) {
	l.next, stop = iter.Pull2(iter.Seq2[record, error](from))
	return stop
}

// atRest is how many events are kept back: one in twenty of a short run, few of a long one, and none where no times are
// taken.
func (l *load) atRest() int64 {
	if l.probe == nil {
		return 0
	}
	return min(l.total, mostAtRest, max(1, l.total/20))
}

// concurrently appends all events but those that are kept back.
func (l *load) concurrently(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	queues := make([]chan record, len(l.writers))
	for i := range queues {
		queues[i] = make(chan record, queued)
		group.Go(func() error { return l.write(ctx, &l.writers[i], queues[i]) })
	}
	group.Go(func() error {
		for _, queue := range queues {
			defer close(queue)
		}
		return l.share(ctx, queues)
	})
	return group.Wait()
}

// share hands the events to the writers of their streams, at the rate that was asked for.
func (l *load) share(ctx context.Context, queues []chan record) error {
	start := time.Now()
	for n := range l.total - l.atRest() {
		r, err, ok := l.next()
		if err != nil || !ok {
			return err
		}
		if l.rate > 0 {
			if err := until(ctx, start.Add(time.Duration(n)*time.Second/time.Duration(l.rate))); err != nil {
				return err
			}
		}
		select {
		case queues[l.owner(r.stream)] <- r:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// owner is which writer a stream belongs to.
func (l *load) owner(stream string) int {
	return int(maphash.String(l.seed, stream) % uint64(len(l.writers)))
}

func (l *load) write(ctx context.Context, w *writer, queue <-chan record) error {
	every := max(1, l.total/samples)
	for r := range queue {
		position, timed, err := l.append(ctx, w, r)
		if err != nil {
			return err
		}
		if n := l.appended.Add(1); timed && l.probe != nil && n%every == 0 {
			l.probe.underLoad(r.event.Type, position)
		}
	}
	return nil
}

// oneAtATime appends what was kept back: each event when all before it is applied.
func (l *load) oneAtATime(ctx context.Context) error {
	for range l.atRest() {
		r, err, ok := l.next()
		if err != nil || !ok {
			return err
		}
		position, timed, err := l.append(ctx, &l.writers[l.owner(r.stream)], r)
		if err != nil {
			return err
		}
		l.appended.Add(1)
		if timed {
			err = l.probe.atRest(ctx, r.event.Type, position)
		} else {
			err = waitForAll(ctx, l.probe.runtime, concerned(r.event.Type), position)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// append appends one event. It is to be timed unless it is a poison event, or behind one, which not all apply at once.
func (l *load) append(ctx context.Context, w *writer, r record) (position int64, timed bool, err error) {
	result, err := l.store.Append(ctx, r.stream, event.Exact(w.versions[r.stream]), r.event)
	if err != nil {
		return 0, false, err
	}
	w.versions[r.stream] = result.Version
	position = result.Positions[0]
	for i, m := range readModels {
		if m.concerns(r.event.Type) {
			raise(&l.last[i], position)
		}
	}
	return position, !l.fault.delays(place{r.stream, result.Version}), nil
}

// settle waits until every projection has dealt with everything that was appended.
func (l *load) settle(ctx context.Context) error {
	for i, m := range readModels {
		if err := l.probe.runtime.WaitFor(ctx, m.id(), l.last[i].Load()); err != nil {
			return fmt.Errorf("wait for %s: %w", m.name, err)
		}
	}
	return nil
}

func raise(highest *atomic.Int64, position int64) {
	for {
		old := highest.Load()
		if position <= old || highest.CompareAndSwap(old, position) {
			return
		}
	}
}

func until(ctx context.Context, due time.Time) error {
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
