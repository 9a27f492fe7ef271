package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
)

// standstill is how long a run may show no progress at all before it is given up.
const standstill = time.Minute

// course is the live part of a run: the runtime applies while the load appends, and the screen shows both.
type course struct {
	runtime *millrace.Runtime
	load    *load
	from    source
	screen  screen
	store   *pgstore.Store
	fault   *fault
	mends   bool          // in the end the fault is mended, and what is parked is replayed
	start   time.Time     // of the first append
	phase   atomic.Value  // of phase
	news    atomic.Value  // of string: what is told beside the figures
	look    chan struct{} // asks for a look at once
	last    figures

	// What the summary is made of.
	loaded, applied           int64
	appending, applying, took time.Duration
}

func newCourse(store *pgstore.Store, from source, events int64, f *fault, o options, log *zap.Logger, s screen) (*course, error) {
	runtime, err := newRuntime(millrace.Config{Store: store, Logger: log}, f)
	if err != nil {
		return nil, err
	}
	return &course{runtime: runtime, load: newLoad(store, newProbe(runtime), f, events, o), from: from, screen: s,
		store: store, fault: f, mends: o.replay, look: make(chan struct{})}, nil
}

// newRuntime makes a runtime of the demo's projections, with that fault.
func newRuntime(config millrace.Config, f *fault) (*millrace.Runtime, error) {
	runtime, err := millrace.New(config)
	if err != nil {
		return nil, err
	}
	for _, m := range readModels {
		if err := runtime.Register(m.projection(f)); err != nil {
			return nil, err
		}
	}
	return runtime, nil
}

// drive returns when everything is applied and the runtime has stopped; when hurry is done it does not wait for it.
func (c *course) drive(ctx, hurry context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(ctx)
	group.Go(func() error {
		err := c.runtime.Run(running)
		if err == nil && running.Err() == nil {
			err = errors.New("the runtime ended by itself")
		}
		return err
	})
	group.Go(func() error {
		defer stop()
		return c.show(ctx)
	})
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-hurry.Done():
		stop()
		return hurry.Err()
	}
}

// ready waits until all projections run, so that no figure holds the time that starting takes.
func (c *course) ready(ctx context.Context) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		status, err := c.runtime.Status(ctx)
		if err != nil {
			return err
		}
		running := 0
		for _, p := range status.Projections {
			if p.Owner != "" && p.Owner == status.Node && p.State != "starting" {
				running++
			}
		}
		if running == len(readModels) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// show does the work and shows how it goes on.
func (c *course) show(ctx context.Context) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	c.start = time.Now()
	c.phase.Store(loading)
	group, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	group.Go(func() error {
		if err := c.work(ctx); err != nil {
			return err
		}
		close(done)
		return nil
	})
	group.Go(func() error { return c.watch(ctx, done) })
	return group.Wait()
}

// work appends the workload and waits until it is applied.
func (c *course) work(ctx context.Context) error {
	defer c.load.open(c.from)()
	endProbe := sync.OnceFunc(c.load.probe.begin(ctx))
	defer endProbe()
	if err := c.load.concurrently(ctx); err != nil {
		return err
	}
	c.appending, c.loaded = time.Since(c.start), c.load.appended.Load()
	c.phase.Store(settling)
	if err := c.load.settle(ctx); err != nil {
		return err
	}
	c.applying = time.Since(c.start)
	endProbe()
	status, err := c.runtime.Status(ctx)
	if err != nil {
		return err
	}
	for _, p := range status.Projections {
		c.applied += p.Applied
	}
	c.phase.Store(oneAtATime)
	if err := c.load.oneAtATime(ctx); err != nil {
		return err
	}
	if c.mends {
		if err := c.mend(ctx); err != nil {
			return err
		}
	}
	c.took = time.Since(c.start)
	c.phase.Store(finished)
	return nil
}

// watch shows the figures from time to time, and a last time when all is done. It ends a run in which nothing moves.
func (c *course) watch(ctx context.Context, done <-chan struct{}) error {
	ticker := time.NewTicker(c.screen.every())
	defer ticker.Stop()
	c.last.total = c.load.total
	movedAt := time.Now()
	for {
		last := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		case <-c.look:
		case <-done:
			last = true
		}
		status, err := c.runtime.Status(ctx)
		if err != nil {
			return err
		}
		next := c.last.look(time.Since(c.start), c.phase.Load().(phase), c.load.appended.Load(), status)
		next.news, _ = c.news.Load().(string)
		next.load, next.rest = c.load.probe.load.latency(), c.load.probe.rest.latency()
		if next.moved(c.last) {
			movedAt = time.Now()
		}
		c.last = next
		if err := c.screen.show(next); err != nil {
			return fmt.Errorf("show the figures: %w", err)
		}
		if last {
			return nil
		}
		if time.Since(movedAt) > standstill {
			return fmt.Errorf("nothing has moved for %v while %s", standstill, next.phase)
		}
	}
}
