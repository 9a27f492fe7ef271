package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// partly takes in what is done of a batch that did not end in one go. What is left to be taken in then, unless that is over, is
// the first event that is not done, alone, and what happened to it. Any other end is left as it is.
func (p *projector) partly(ctx actor.Context, batch engine.Batch, err error) (left engine.Batch, over bool, cause error) {
	var partial *engine.PartialResult
	if !errors.As(err, &partial) {
		return batch, false, err
	}
	done, left := partial.Split(batch)
	if partial.To > p.lease.Checkpoint {
		p.applied(ctx, done, nil, finding{})
		p.recent = partial.FailureWindow
		p.lease.Parked += int64(len(partial.Rejected))
	}
	if len(partial.Rejected) > 0 {
		p.answered() // what the handler depends on refused it, and so is there
	}
	for _, letter := range partial.Rejected {
		p.replayIn(ctx, p.def.Replay.Interval)
		p.log.Error("event parked, as its handler rejected it", zap.Int64("position", letter.Position), zap.String("stream", letter.Stream),
			zap.String("type", letter.Type), zap.Int("attempt", letter.Attempts), zap.String("error", letter.Error))
	}
	return left, partial.Err == nil, partial.Err
}

// yielding returns what is closed when the projection is to come to rest.
func (p *projector) yielding() <-chan struct{} {
	if p.yield == nil {
		p.yield = make(chan struct{})
	}
	return p.yield
}

// rest asks what is under way to stop where it can do so in order.
func (p *projector) rest() {
	if p.yield != nil {
		close(p.yield)
		p.yield = nil
	}
}

// apply runs a batch or a delivery. It remembers whether a delivery took long, and lets cutShort end it.
func (p *projector) apply(ctx context.Context, lease engine.Lease, batch engine.Batch) error {
	if p.def.Leased && len(batch.Events) > 0 {
		began := time.Now()
		defer func() { p.long.Store(time.Since(began) > longDelivery) }()
		delivery, cut := context.WithCancelCause(ctx)
		defer cut(nil)
		p.cut.Store(&cut)
		defer p.cut.Store(nil)
		ctx = delivery
	}
	return p.def.Apply(ctx, lease, batch)
}

// errDoubted ends a delivery whose lease another node may have.
var errDoubted = fmt.Errorf("the database says that this node no longer holds the lease: %w", projection.ErrLeaseLost)

// cutShort ends the delivery that is under way, if there is one: no fence holds back what it sends.
func (p *projector) cutShort() {
	if cut := p.cut.Load(); cut != nil {
		(*cut)(errDoubted)
	}
}

// reading waits for a slot for reads before a delivery that reads, since the delivery's own slot stands for no connection.
func (p *projector) reading(ctx context.Context, needed bool) (release func(), err error) {
	if !p.def.Leased || !needed {
		return func() {}, nil
	}
	release, err = p.env.Limiter.read(ctx)
	return sync.OnceFunc(release), err
}

// briefly runs a short statement on the control schema, for a delivery within a slot for those.
func (p *projector) briefly(ctx context.Context, statement func() error) error {
	if p.def.Leased {
		release, err := p.env.Limiter.Ack(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	return statement()
}
