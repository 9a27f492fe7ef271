package actors

import (
	"context"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// probeLimit limits a probe: a server that takes longer for two short statements does not work.
const probeLimit = 10 * time.Second

// prober finds out whether the server works. A probe does not use the connection on which the fault happened. Only one
// probe runs at a time. Its result goes to all callers that asked before it began.
type prober struct {
	mu      sync.Mutex
	running bool
	asked   []func(err error) // before the next probe
}

// Probe returns nil if the server works, by a probe that begins after the call. The error may also be ctx's.
func (d *Deps) Probe(ctx context.Context) error {
	answer := make(chan error, 1)
	d.askProber(func(err error) { answer <- err })
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ProbeThen calls done in the actor of ctx with the result of a probe that begins after the call.
func (d *Deps) ProbeThen(ctx actor.Context, done func(ctx actor.Context, err error)) {
	self := ctx.Self()
	d.askProber(func(err error) { d.call(self, func(ctx actor.Context) { done(ctx, err) }) })
}

func (d *Deps) askProber(answer func(err error)) {
	p := &d.prober
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, answer)
	if !p.running {
		p.running = true
		d.Own(d.probe)
	}
}

// probe probes the server until there are no more questions.
func (d *Deps) probe() {
	for p := &d.prober; ; {
		p.mu.Lock()
		asked := p.asked
		p.asked, p.running = nil, len(asked) > 0
		p.mu.Unlock()
		if len(asked) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(d.life, min(d.Timing.QueryTimeout, probeLimit))
		err := d.Health.Probe(ctx)
		cancel()
		for _, answer := range asked {
			answer(err)
		}
	}
}
