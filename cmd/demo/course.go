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
	"github.com/millrace-go/millrace/projection"
)

// standstill is how long a run may show no progress at all before it is given up.
const standstill = time.Minute

// course is the live part of a run: the runtime applies while the load appends, and the screen shows both.
type course struct {
	runtime *millrace.Runtime
	load    *load
	from    source
	screen  screen
	start   time.Time    // of the first append
	phase   atomic.Value // of phase
	last    figures

	// What the summary is made of.
	loaded, applied           int64
	appending, applying, took time.Duration
}

func newCourse(store *pgstore.Store, from source, found survey, o options, log *zap.Logger, s screen) (*course, error) {
	runtime, err := newRuntime(millrace.Config{Store: store, Logger: log}, found.poison, o.action())
	if err != nil {
		return nil, err
	}
	return &course{runtime: runtime, load: newLoad(store, newProbe(runtime), found, o), from: from, screen: s}, nil
}

// newRuntime makes a runtime of the demo's projections, which fail at the chosen events.
func newRuntime(config millrace.Config, chosen poison, onError projection.Action) (*millrace.Runtime, error) {
	runtime, err := millrace.New(config)
	if err != nil {
		return nil, err
	}
	for _, m := range readModels {
		if err := runtime.Register(m.projection(chosen, onError)); err != nil {
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
		case <-done:
			last = true
		}
		status, err := c.runtime.Status(ctx)
		if err != nil {
			return err
		}
		next := c.last.look(time.Since(c.start), c.phase.Load().(phase), c.load.appended.Load(), status)
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
