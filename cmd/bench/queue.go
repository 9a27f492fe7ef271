package main

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// queue passes the tenants that were woken to workers. A tenant is with one worker at a time, and waits at most once.
type queue struct {
	tenants chan int
	ended   chan struct{}

	mu     sync.Mutex
	states []queueState // by tenant
}

type queueState int

const (
	asleep queueState = iota
	queued
	busy
	// busyAgain is a tenant that was woken while a worker had it.
	busyAgain
)

func newQueue(tenants int) *queue {
	return &queue{tenants: make(chan int, tenants), ended: make(chan struct{}), states: make([]queueState, tenants)}
}

// wake queues a tenant. It does not block.
func (q *queue) wake(tenant int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch q.states[tenant] {
	case asleep:
		q.states[tenant] = queued
		q.tenants <- tenant // there is room for all
	case busy:
		q.states[tenant] = busyAgain
	}
}

// work calls fn for woken tenants, until the queue closes.
func (q *queue) work(ctx context.Context, fn func(tenant int) error) error {
	for {
		var tenant int
		select {
		case tenant = <-q.tenants:
		case <-q.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		q.change(tenant, busy)
		if err := fn(tenant); err != nil {
			return err
		}
		q.done(tenant)
	}
}

func (q *queue) change(tenant int, to queueState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.states[tenant] = to
}

// done queues the tenant again if it was woken meanwhile.
func (q *queue) done(tenant int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.states[tenant] == busy {
		q.states[tenant] = asleep
		return
	}
	q.states[tenant] = queued
	q.tenants <- tenant
}

// close ends the workers, and returns their error.
func (q *queue) close(workers *errgroup.Group) error {
	close(q.ended)
	return workers.Wait()
}
