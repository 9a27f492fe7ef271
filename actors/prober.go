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
	// running is the probe in progress, next the one that begins after it. Both are nil if there is none.
	running, next *probe
}

// probe is one probe. done is closed when err is its result.
type probe struct {
	done chan struct{}
	err  error
}

// Probe returns nil if the server works, by a probe that begins after the call. The error may also be ctx's.
func (d *Deps) Probe(ctx context.Context) error {
	probe := d.prober.ask(d.startProbe)
	select {
	case <-probe.done:
		return probe.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask returns the first probe that begins after this call. start is called to begin a probe.
func (p *prober) ask(start func()) *probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		p.running = &probe{done: make(chan struct{})}
		start()
		return p.running
	}
	if p.next == nil {
		p.next = &probe{done: make(chan struct{})}
	}
	return p.next
}

// answered passes on the result of the probe in progress, and begins the next probe if there are callers for it.
func (p *prober) answered(err error, start func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running.err = err
	close(p.running.done)
	if p.running, p.next = p.next, nil; p.running != nil {
		start()
	}
}

// startProbe runs a probe in a goroutine of its own.
func (d *Deps) startProbe() {
	d.Own(func() {
		ctx, cancel := context.WithTimeout(d.life, min(d.Timing.QueryTimeout, probeLimit))
		err := d.Store.Probe(ctx)
		cancel()
		d.prober.answered(err, d.startProbe)
	})
}

// probeLimit limits a probe: a server that takes longer for two short statements does not work.
const probeLimit = 10 * time.Second
