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

// work calls fn for woken tenants, for up to most that wait at a time, until the queue closes.
func (q *queue) work(ctx context.Context, most int, fn func(tenants []int) error) error {
	for {
		tenants := make([]int, 0, most)
		select {
		case tenant := <-q.tenants:
			tenants = append(tenants, tenant)
		case <-q.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		for more := true; more && len(tenants) < most; {
			select {
			case tenant := <-q.tenants:
				tenants = append(tenants, tenant)
			default:
				more = false
			}
		}
		q.begin(tenants)
		if err := fn(tenants); err != nil {
			return err
		}
		q.done(tenants)
	}
}

func (q *queue) begin(tenants []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, tenant := range tenants {
		q.states[tenant] = busy
	}
}

// done queues those of the tenants again that were woken meanwhile.
func (q *queue) done(tenants []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, tenant := range tenants {
		if q.states[tenant] == busy {
			q.states[tenant] = asleep
			continue
		}
		q.states[tenant] = queued
		q.tenants <- tenant
	}
}

// close ends the workers, and returns their error.
func (q *queue) close(workers *errgroup.Group) error {
	close(q.ended)
	return workers.Wait()
}
