package actors

import (
	"context"
	"sync"
	"time"
)

// prober checks whether the server works. A probe uses a different connection from the one that met the fault. One probe runs at
// a time, and all callers share its result. The probe of a result always began after the call.
type prober struct {
	mu sync.Mutex
	// running is the probe under way, next the one that begins after it; nil where there is none.
	running, next *probe
}

// probe is one probe. done is closed when err is its result.
type probe struct {
	done chan struct{}
	err  error
}

// Probe returns nil if the server can be worked with, by a probe that begins after the call. An error may also be ctx's.
func (e *Deps) Probe(ctx context.Context) error {
	p := e.prober.ask(e.startProbe)
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask returns the first probe that begins after this call. start is called to begin a probe.
func (b *prober) ask(start func()) *probe {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running == nil {
		b.running = &probe{done: make(chan struct{})}
		start()
		return b.running
	}
	if b.next == nil {
		b.next = &probe{done: make(chan struct{})}
	}
	return b.next
}

// answered passes on the result of the probe under way, and begins the next probe if there are callers for it.
func (b *prober) answered(err error, start func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running.err = err
	close(b.running.done)
	if b.running, b.next = b.next, nil; b.running != nil {
		start()
	}
}

// startProbe runs a probe in a goroutine of its own.
func (e *Deps) startProbe() {
	e.Own(func() {
		ctx, cancel := context.WithTimeout(e.life, min(e.Timing.QueryTimeout, probeLimit))
		err := e.Store.Probe(ctx)
		cancel()
		e.prober.answered(err, e.startProbe)
	})
}

// probeLimit bounds a probe: a server that takes longer for two short statements cannot be worked with.
const probeLimit = 10 * time.Second
