package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-go/millrace"
)

// waiter is what tells that a projection has applied a position.
type waiter interface {
	WaitFor(ctx context.Context, id millrace.ProjectionID, position int64) error
}

// mostTimed is more than the appends that a load has timed.
const mostTimed = 3 * samples

// probe takes the time of a sample of the appends, each on one of the projections that it concerns, in turn.
type probe struct {
	runtime waiter
	load    stopwatch // while many events are appended at once: mostly the time that they wait for their turn
	rest    stopwatch // one event at a time, when all before it is applied: what a wake-up costs
	turn    atomic.Int64
	timed   map[string]chan timed // by projection
	waiting sync.WaitGroup
}

// timed is an append whose time is taken.
type timed struct {
	position int64
	appended time.Time
}

func newProbe(runtime waiter) *probe {
	p := &probe{runtime: runtime, timed: make(map[string]chan timed)}
	for _, m := range readModels {
		p.timed[m.name] = make(chan timed, mostTimed)
	}
	return p
}

// begin starts to take times under load. They are waited for in the order in which they were handed in, so that one
// whose position is below the one before it may seem to have taken up to a batch longer than it did. The function
// returned waits until all are taken.
func (p *probe) begin(ctx context.Context) (end func()) {
	for _, m := range readModels {
		p.waiting.Go(func() {
			for t := range p.timed[m.name] {
				if p.runtime.WaitFor(ctx, m.id(), t.position) == nil {
					p.load.add(time.Since(t.appended))
				}
			}
		})
	}
	return func() {
		for _, queue := range p.timed {
			close(queue)
		}
		p.waiting.Wait()
	}
}

// underLoad takes the time of an event that was appended just now, without holding its writer up.
func (p *probe) underLoad(eventType string, position int64) {
	p.timed[p.next(concerned(eventType)).name] <- timed{position, time.Now()}
}

// atRest takes the time of an event that was appended just now, and returns when all projections have applied it.
func (p *probe) atRest(ctx context.Context, eventType string, position int64) error {
	appended := time.Now()
	models := concerned(eventType)
	if err := p.runtime.WaitFor(ctx, p.next(models).id(), position); err != nil {
		return err
	}
	p.rest.add(time.Since(appended))
	return waitForAll(ctx, p.runtime, models, position)
}

func (p *probe) next(models []readModel) readModel {
	return models[int(p.turn.Add(1))%len(models)]
}

func waitForAll(ctx context.Context, runtime waiter, models []readModel, position int64) error {
	for _, m := range models {
		if err := runtime.WaitFor(ctx, m.id(), position); err != nil {
			return err
		}
	}
	return nil
}
