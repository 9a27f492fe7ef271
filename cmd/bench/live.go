package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/pgstore"
)

var latencyMetrics = []metric{{"p50", "ms", lower, true}, {"p99", "ms", lower, false}}

// liveWriters is how many writers share the rate of live. A handwritten loop that reads after its checkpoint loses
// events of concurrent writers, so there is one.
const liveWriters = 1

var liveScenario = scenario{
	name: "live",
	about: `One writer appends events at a constant rate. With several, the handwritten loops would lose events, since positions become
		visible out of order. Measured is the time from the return of an append until the program
		knows that the transaction that applied the event has committed. The handwritten loop is woken by a NOTIFY in the transaction
		of the append, reads, and applies the batch in one round trip. The polling loops read at an interval. millrace is woken within
		the process (with "queued", a batch is one message), or by the NOTIFY of another store, as of another process.`,
	cases: func(o sizeOptions) []benchCase {
		return []benchCase{{
			name:    fmt.Sprintf("%d events/s", o.liveRate),
			metrics: latencyMetrics,
			goals: []goal{
				{contender: "millrace, queued", metric: "p50", to: "handwritten LISTEN loop", atMost: 1.1},
				{contender: "millrace", metric: "p50", to: "handwritten LISTEN loop", atMost: 1.6},
				{contender: "millrace, other process", metric: "p50", to: "handwritten LISTEN loop", atMost: 3},
			},
			prepare: func(ctx context.Context, e *env) ([]contender, error) { return liveContenders(ctx, e, o) },
		}}
	},
}

// delays records when appends returned and when checkpoints had advanced.
type delays struct {
	mu       sync.Mutex
	returned []moment
	applied  []moment
	reached  chan struct{} // has a value after applied has changed
	// unordered is set if each applied moment is that of one event, in any order.
	unordered bool
}

// moment is when a position was appended, or when all events up to it were applied.
type moment struct {
	position int64
	at       time.Time
}

func newDelays() *delays { return &delays{reached: make(chan struct{}, 1)} }

func (d *delays) appended(position int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.returned = append(d.returned, moment{position, time.Now()})
}

func (d *delays) advance(position int64) {
	d.mu.Lock()
	d.applied = append(d.applied, moment{position, time.Now()})
	d.mu.Unlock()
	select {
	case d.reached <- struct{}{}:
	default:
	}
}

// wait returns when everything that was appended is applied.
func (d *delays) wait(ctx context.Context) error {
	for {
		done := d.complete()
		if done {
			return nil
		}
		select {
		case <-d.reached:
		case <-ctx.Done():
			return errors.New("the events were not applied in time")
		}
	}
}

// complete reports whether everything that was appended is applied.
func (d *delays) complete() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unordered {
		return len(d.applied) >= len(d.returned)
	}
	last := int64(0)
	for _, m := range d.returned {
		last = max(last, m.position)
	}
	return len(d.applied) > 0 && d.applied[len(d.applied)-1].position >= last
}

// forget forgets all moments.
func (d *delays) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.returned, d.applied = nil, nil
}

// list returns the delay of each event, 0 if it was applied before its append returned.
func (d *delays) list() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unordered {
		slices.SortFunc(d.applied, func(a, b moment) int { return cmp.Compare(a.position, b.position) })
	}
	var all []time.Duration
	for _, m := range d.returned {
		i, _ := slices.BinarySearchFunc(d.applied, m.position,
			func(a moment, position int64) int { return cmp.Compare(a.position, position) })
		all = append(all, max(0, d.applied[i].at.Sub(m.at)))
	}
	return all
}

// appendAtRate appends at a rate, by all writers together, and records the returns of the appends.
func (d *delays) appendAtRate(ctx context.Context, rate int, duration time.Duration, prefix string,
	writers []appendFunc) error {
	group, ctx := errgroup.WithContext(ctx)
	interval := time.Second * time.Duration(len(writers)) / time.Duration(rate)
	n := max(1, int(duration/interval))
	begin := time.Now()
	for w, appendOne := range writers {
		group.Go(func() error {
			offset := interval * time.Duration(w) / time.Duration(len(writers))
			for i := range n {
				select {
				case <-time.After(time.Until(begin.Add(offset + interval*time.Duration(i)))):
				case <-ctx.Done():
					return ctx.Err()
				}
				position, err := appendOne(ctx, fmt.Sprintf("%s-%d-%d", prefix, w, i%streamsPerWriter))
				if err != nil {
					return err
				}
				d.appended(position)
			}
			return nil
		})
	}
	return group.Wait()
}

// liver runs the contenders of live.
type liver struct {
	*env
	store  *pgstore.Store
	tenant *pgstore.Tenant
	o      sizeOptions
	events int // appended in all rounds
}

func liveContenders(ctx context.Context, e *env, o sizeOptions) ([]contender, error) {
	store, err := e.store(ctx, 12, pgstore.Options{}, nil)
	if err != nil {
		return nil, err
	}
	tenants, err := e.tenants(ctx, store, 1)
	if err != nil {
		return nil, err
	}
	other, err := e.store(ctx, liveWriters+1, pgstore.Options{}, nil)
	if err != nil {
		return nil, err
	}
	elsewhere, err := other.ForTenant("t0")
	if err != nil {
		return nil, err
	}
	l := &liver{env: e, store: store, tenant: tenants[0], o: o}
	return []contender{
		l.byHand("handwritten LISTEN loop", []string{notifyByHand}, (*handLoop).listen),
		l.millrace("millrace", l.tenant, batchSetBased),
		l.millrace("millrace, queued", l.tenant, queuedSetBased),
		l.millrace("millrace, other process", elsewhere, batchSetBased),
		l.byHand("poll every 100 ms", nil, polling(100*time.Millisecond)),
		l.byHand("poll every second", nil, polling(time.Second)),
	}, nil
}

// take appends at the rate of the case while run applies, and returns the percentiles.
func (l *liver) take(ctx context.Context, d *delays, prefix string, writers []appendFunc,
	run func(ctx context.Context) error) (figures, int, error) {
	err := while(ctx, run, func() error {
		err := d.appendAtRate(ctx, l.o.liveRate, l.o.liveTime, prefix, writers)
		l.events += len(d.returned)
		if err != nil {
			return err
		}
		return d.wait(ctx)
	})
	if err != nil {
		return nil, 0, err
	}
	all := d.list()
	return figures{percentile(all, 0.5), percentile(all, 0.99)}, len(all), nil
}

// millrace appends through a store, and runs a projection that is at the end, like the others.
func (l *liver) millrace(name string, from *pgstore.Tenant, handler handlerFunc) contender {
	var seen tally
	return contender{name, func(ctx context.Context, round int) (figures, verify, error) {
		d := newDelays()
		rt, err := l.runtime(name, d, handler(name, &seen))
		if err != nil {
			return nil, nil, err
		}
		if _, err := rt.RunUntilIdle(ctx); err != nil {
			return nil, nil, err
		}
		rt, err = l.runtime(name, d, handler(name, &seen))
		if err != nil {
			return nil, nil, err
		}
		f, _, err := l.take(ctx, d, fmt.Sprint(name, round), repeat(liveWriters, appendTo(from)), rt.Run)
		return f, all(l.counted(name, l.events), seen.inOrder(l.events)), err
	}}
}

// runtime returns a runtime that reports the checkpoints of a projection.
func (l *liver) runtime(name string, d *delays, handler millrace.Handler) (*millrace.Runtime, error) {
	rt, err := millrace.New(millrace.Config{Store: l.store,
		Observer: observe.Observer{BatchEnded: func(b observe.Batch) {
			if b.Err == nil {
				d.advance(b.Position)
			}
		}}})
	if err != nil {
		return nil, err
	}
	return rt, rt.Register(millrace.Projection{Name: name, Handler: handler})
}

// byHand runs a handwritten loop that begins at the end.
func (l *liver) byHand(name string, after []string,
	run func(loop *handLoop, ctx context.Context, applied func(int64)) error) contender {
	return contender{name, func(ctx context.Context, round int) (figures, verify, error) {
		writers, closeAll, err := l.handWriters(ctx, liveWriters, l.tenant, nil, after)
		if err != nil {
			return nil, nil, err
		}
		defer closeAll()
		id := fmt.Sprint(name, " ", round)
		loop, closeLoop, err := l.handLoop(ctx, l.tenant, id, true)
		if err != nil {
			return nil, nil, err
		}
		defer closeLoop()
		d := newDelays()
		f, n, err := l.take(ctx, d, id, writers, func(ctx context.Context) error { return run(loop, ctx, d.advance) })
		return f, all(l.counted(id, n), loop.tally.inOrder(n)), err
	}}
}

// polling returns a loop that reads at an interval.
func polling(interval time.Duration) func(loop *handLoop, ctx context.Context, applied func(int64)) error {
	return func(loop *handLoop, ctx context.Context, applied func(int64)) error {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		return loop.follow(ctx, func(ctx context.Context) error {
			select {
			case <-ticker.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, applied)
	}
}
