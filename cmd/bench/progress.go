package main

import (
	"context"
	"fmt"
	"sync/atomic"
)

// progress counts what was done.
type progress struct {
	done    atomic.Int64
	changed chan struct{} // has a value after done has changed
}

func newProgress() *progress { return &progress{changed: make(chan struct{}, 1)} }

func (p *progress) add(n int) {
	if n == 0 {
		return
	}
	p.done.Add(int64(n))
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// wait returns when n things were done, or with an error if there are more, or if ctx ends. Only one goroutine may
// wait.
func (p *progress) wait(ctx context.Context, n int) error {
	if err := p.atLeast(ctx, n); err != nil {
		return err
	}
	if done := p.done.Load(); done > int64(n) {
		return fmt.Errorf("%d events were applied, want %d", done, n)
	}
	return nil
}

// atLeast returns when n things or more were done.
func (p *progress) atLeast(ctx context.Context, n int) error {
	for p.done.Load() < int64(n) {
		select {
		case <-p.changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d events were applied: %w", p.done.Load(), n, context.Cause(ctx))
		}
	}
	return nil
}
