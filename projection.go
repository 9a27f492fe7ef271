package millrace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/projection"
)

// ProjectionID names one projection of one tenant. An empty Tenant means the default tenant.
type ProjectionID = projection.ID

// Projection is a named handler and how its events are handled. Name and Handler must be set.
type Projection struct {
	// Name names the projection and its checkpoint. A projection with a new name starts at the first event. 1 to 100 bytes.
	Name string
	// Handler handles the events. It is made by pgstore.Each, Batch, On, OnBatch or Route, or by Deliver or DeliverEach.
	Handler Handler

	// Types selects events by type. It must be empty if the handler selects them, as pgstore.On does. Default: all events.
	Types []string
	// MaxEvents bounds the events of a batch. Default 500: far fewer cost throughput, far more hold locks of the read
	// model for longer and gain little.
	MaxEvents int
	// MaxBytes bounds a batch in bytes of events, about. Default 4 MiB. One larger event is a batch of its own.
	MaxBytes int
	// Timeout bounds one call of the handler. Default 30 s. In a transaction, half of it bounds the wait for each lock that another
	// session holds. A wait that is too long is not counted against an event, and the batch is tried again until it succeeds.
	Timeout time.Duration
	// AsyncCommit commits batches without waiting for the disk. After a crash of the server the last of them are done again,
	// read model and checkpoint alike, so it is safe for pure read models, but not where others act upon what the
	// handler writes. Events that the handler appends by AppendTx make their batch wait for the disk all the same. It is
	// refused for Deliver and DeliverEach, which have no transaction.
	AsyncCommit bool

	// Retry says when a failing event is tried again. Default: 4 attempts, with delays of 1 s, 2 s and 4 s between them, 20 % shorter or longer.
	// A handler whose error is wrapped in backoff.Permanent (cenkalti/backoff/v4) is not called again for its event.
	Retry projection.RetryPolicy
	// OnFailure is what becomes of an event whose retries are used up. Default: projection.ActionPark, which puts it into
	// the dead letters, so that the others go on. ActionParkStream parks the later events of its stream behind it, in order,
	// until they are replayed: for read models that must not miss one event of a stream and see the next. ActionSkip goes on without a trace but a warning and a number in the
	// status. ActionStop lets the projection wait at the event, failed, until somebody resumes it. ActionRetry tries it
	// for ever. What a handler asks for by projection.Retry, Park, ParkStream, Skip or Stop wins over this, and so does FailureHandler.
	OnFailure projection.Action
	// FailureHandler, where it is set, decides about each failure that was counted, in place of Retry.MaxAttempts and OnFailure:
	// also about the first, so it says ActionRetry as often as it wants retries, which follow after Retry's delays. It is
	// not asked where the handler itself asks for something, and never about faults of the infrastructure. It gets 5 s;
	// where it takes longer, panics, or answers with no action, Retry and OnFailure decide, and the log says so. Where the
	// error is permanent, or processes die of the event, ActionRetry means ActionPark. It may be called from several
	// goroutines at once, for different tenants, and again for a failure whose outcome was lost.
	FailureHandler func(ctx context.Context, f projection.Failure) projection.Action
	// MaxFailureShare is the share of the last 100 events that may be parked or skipped. When more of them failed, and at
	// least 20, the next one stops the projection as ActionStop does, and the reason says how many failed: that is a bug
	// or something that is missing, and no bad event. Default 0.5; negative allows all. With a new owner of the lease, and
	// when the projection is resumed, it is counted anew.
	MaxFailureShare float64
	// MaxParked is how many events may be parked at a time, those behind others of their streams included. The next one stops
	// the projection as ActionStop does. Default 10,000; negative means any number.
	MaxParked int64
	// MissingObjectTimeout is how long the projection waits at an event for a missing table, column, function, schema or
	// privilege that its handler needs, for instance one that a migration has yet to make. Meanwhile it tries again every few
	// seconds, its state is StateMissingObject, and nothing is counted. After that time the error is counted against the
	// event like any other, since dynamic SQL may name a missing object for one event alone. Default 5 min; if negative, the
	// error is counted at once.
	MissingObjectTimeout time.Duration
	// Replay has parked events replayed by themselves. Default: nobody replays them but store.DeadLetters(id).Replay.
	Replay projection.ReplayPolicy
	// Breaker is for a handler that depends on something outside, say a web service: while that is down the projection waits,
	// and no event is blamed. It has one where Breaker.IsOutage is set. With a new owner of the lease it begins closed. Default:
	// none, and what is down outside counts against events as every error of the handler's does.
	Breaker projection.BreakerPolicy
}

func (p Projection) withDefaults() Projection {
	if p.MaxEvents == 0 {
		p.MaxEvents = 500
	}
	if p.MaxBytes == 0 {
		p.MaxBytes = 4 << 20
	}
	if p.Timeout == 0 {
		p.Timeout = 30 * time.Second
	}
	return p
}

// validate returns the first invalid field of a projection that has its defaults.
func (p Projection) validate() error {
	switch {
	case p.Name == "":
		return errors.New("Projection.Name must be set")
	case len(p.Name) > 100:
		return fmt.Errorf("Projection.Name must be at most 100 bytes: %s", excerpt.Quoted(p.Name))
	case p.MaxEvents < 1 || p.MaxEvents > math.MaxInt16:
		return fmt.Errorf("Projection.MaxEvents must be from 1 to %d: %d", math.MaxInt16, p.MaxEvents)
	case p.MaxBytes < 0:
		return fmt.Errorf("Projection.MaxBytes must not be negative: %d", p.MaxBytes)
	case p.Timeout < 10*time.Millisecond:
		return fmt.Errorf("Projection.Timeout must be at least 10ms: %v", p.Timeout)
	}
	return valid.Text("Projection.Name", p.Name)
}

// definition is the projection as the actors see it.
func (p Projection) definition(r *Runtime) (*engine.Definition, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	h, err := p.handle(r.store)
	if err != nil {
		return nil, err
	}
	for _, t := range h.Types {
		if t == "" {
			return nil, errors.New("an event type must not be empty")
		}
		if err := valid.Text("event type", t); err != nil {
			return nil, err
		}
	}
	policy := engine.Policy{
		Retry: p.Retry, OnFailure: p.OnFailure, FailureHandler: p.FailureHandler, MaxFailureShare: p.MaxFailureShare,
		MaxParked: p.MaxParked, Replay: p.Replay,
	}.WithDefaults()
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	breaker := engine.BreakerDefaults(p.Breaker)
	if err := engine.ValidateBreaker(breaker); err != nil {
		return nil, err
	}
	def := &engine.Definition{
		Name:      p.Name,
		Types:     slices.Clone(h.Types),
		MaxEvents: p.MaxEvents,
		MaxBytes:  p.MaxBytes,
		Timeout:   p.Timeout,
		Leased:    h.Deliver != nil,
		Policy:    policy,
		Breaker:   breaker,
		Faults:    engine.FaultLimits{MissingObject: p.MissingObjectTimeout}.WithDefaults(),
	}
	if def.Leased {
		def.Apply = r.store.Deliver(h, engine.DeliverOptions{Timeout: p.Timeout, Policy: def.Policy, Trust: r.trust, Slot: r.ackSlot})
	} else {
		def.Apply = r.store.Apply(h, engine.ApplyOptions{Timeout: p.Timeout, AsyncCommit: p.AsyncCommit})
	}
	return def, nil
}
