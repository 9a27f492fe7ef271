package millrace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// ProjectionID names one projection of one tenant. An empty Tenant means the default tenant.
type ProjectionID = projection.ID

// Projection is a named handler. Exactly one of Batch, Each, Deliver and DeliverEach is set.
type Projection struct {
	// Name names the projection, and with it its checkpoint: under another name it starts at the first event again.
	// 1 to 100 bytes.
	Name string
	// Batch handles many events at once, which is what makes a projection fast: one statement for all of them, or a
	// pgx.Batch. An error rolls the batch back; it is then tried again in smaller batches until the event that fails
	// stands alone, unless the handler names it by projection.At.
	Batch pgstore.BatchHandler
	// Each handles one event at a time.
	Each pgstore.EventHandler
	// Deliver handles events whose effects are outside of the database, in mails, webhooks or brokers: it works outside of a
	// transaction, under a time budget, and acknowledges as it goes. Events come at least once, in order, each with a token
	// by which receivers can tell repeats; pgstore.DeliveryHandler says exactly what is promised.
	Deliver pgstore.DeliveryHandler
	// DeliverEach is Deliver for one event at a time, each acknowledged before the next. Deadline bounds all that is
	// delivered in one go; where it passes between two events, the rest follows.
	DeliverEach pgstore.DeliveredHandler

	// Types selects events by type. Default: all events.
	Types []string
	// MaxEvents bounds the events of a batch. Default 500: far fewer cost throughput, far more hold locks of the read
	// model for longer and gain little.
	MaxEvents int
	// MaxBytes bounds a batch in bytes of events, about. Default 4 MiB. One larger event is a batch of its own.
	MaxBytes int
	// Deadline bounds one call of the handler. Default 30 s. In a transaction, half of it bounds the wait for each lock that somebody else
	// holds; such waits count as nobody's fault and are tried again for ever.
	Timeout time.Duration
	// AsyncCommit commits batches without waiting for the disk. After a crash of the server the last of them are done again,
	// read model and checkpoint alike, so it is safe for pure read models, but not where others act upon what the
	// handler writes. Events that the handler appends by AppendTx make their batch wait for the disk all the same. It is
	// refused beside Deliver and DeliverEach, which have no transaction.
	AsyncCommit bool

	// Retry says when a failing event is tried again. Default: 3 retries after 1 s, 2 s and 4 s, 20 % shorter or longer.
	// A handler whose error is wrapped in backoff.Permanent (cenkalti/backoff/v4) is not called again for its event.
	Retry projection.RetryPolicy
	// OnFailure is what becomes of an event whose retries are used up. Default: projection.ActionPark, which puts it into
	// the dead letters, so that the others go on. ActionParkStream parks the later events of its stream behind it, in order,
	// until they are replayed: for read models that must not miss one event of a stream and see the next. ActionSkip goes on without a trace but a warning and a number in the
	// status. ActionStop lets the projection wait at the event, failed, until somebody resumes it. ActionRetry tries it
	// for ever. What a handler asks for by projection.Retry, Park, ParkStream, Skip or Stop wins over this, and so does FailureHandler.
	OnFailure projection.Action
	// FailureHandler, where it is set, decides about each failure that was counted, in place of Retry.MaxRetries and OnFailure:
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
	p.Retry = p.Retry.WithDefaults()
	if p.MaxFailureShare == 0 {
		p.MaxFailureShare = 0.5
	}
	if p.MaxParked == 0 {
		p.MaxParked = 10_000
	}
	p.Replay = p.Replay.WithDefaults()
	p.Breaker = p.Breaker.WithDefaults()
	return p
}

// validate names the first field that makes no sense, of a projection with its defaults in place.
func (p Projection) validate() error {
	switch {
	case p.Name == "":
		return errors.New("there is no Projection.Name: it is empty")
	case len(p.Name) > 100:
		return fmt.Errorf("Projection.Name must be at most 100 bytes: %s", excerpt.Quoted(p.Name))
	}
	if err := valid.Text("Projection.Name", p.Name); err != nil {
		return err
	}
	err := func() error {
		switch {
		case len(p.handlers()) == 0:
			return errors.New("neither Batch, Each, Deliver nor DeliverEach is set")
		case len(p.handlers()) > 1:
			return fmt.Errorf("both %s are set", strings.Join(p.handlers(), " and "))
		case p.AsyncCommit && p.leased() != nil:
			return fmt.Errorf("value of AsyncCommit is true beside %s, which has no transaction that it could concern", p.handlers()[0])
		case p.MaxEvents < 1 || p.MaxEvents > math.MaxInt16:
			return fmt.Errorf("value of MaxEvents is not from 1 to %d: %d", math.MaxInt16, p.MaxEvents)
		case p.MaxBytes < 0:
			return fmt.Errorf("value of MaxBytes is negative: %d", p.MaxBytes)
		case p.Timeout < 10*time.Millisecond:
			return fmt.Errorf("value of Timeout is below 10 ms: %v", p.Timeout)
		case slices.Contains(p.Types, ""):
			return errors.New("an empty type is among Types")
		}
		for _, t := range p.Types {
			if err := valid.Text("Types", t); err != nil {
				return err
			}
		}
		switch {
		case !p.OnFailure.Known():
			return fmt.Errorf("value of OnFailure is no action: %d", int(p.OnFailure))
		case !(p.MaxFailureShare <= 1):
			return fmt.Errorf("value of MaxFailureShare is above 1: %v", p.MaxFailureShare)
		}
		return errors.Join(p.Retry.Validate(), p.Breaker.Validate(), p.Replay.Validate())
	}()
	if err != nil {
		return fmt.Errorf("projection %q: %w", p.Name, err)
	}
	return nil
}

// handlers names the handlers that are set.
func (p Projection) handlers() (names []string) {
	for _, handler := range []struct {
		name string
		set  bool
	}{{"Batch", p.Batch != nil}, {"Each", p.Each != nil}, {"Deliver", p.Deliver != nil}, {"DeliverEach", p.DeliverEach != nil}} {
		if handler.set {
			names = append(names, handler.name)
		}
	}
	return names
}

// leased is the handler that works outside of a transaction, nil where there is none.
func (p Projection) leased() pgstore.DeliveryHandler {
	if p.DeliverEach != nil {
		return pgstore.DeliverEach(p.DeliverEach)
	}
	return p.Deliver
}

// definition is the projection as the actors see it.
func (p Projection) definition(r *Runtime) *engine.Definition {
	port := r.port
	def := &engine.Definition{
		Name:      p.Name,
		Types:     slices.Clone(p.Types),
		MaxEvents: p.MaxEvents,
		MaxBytes:  p.MaxBytes,
		Timeout:   p.Timeout,
		Leased:    p.leased() != nil,
		Policy: engine.Policy{
			Retry: p.Retry, OnFailure: p.OnFailure, FailureHandler: p.FailureHandler, MaxFailureShare: p.MaxFailureShare,
			MaxParked: p.MaxParked, Replay: p.Replay,
		},
		Breaker: p.Breaker,
		Faults:  engine.FaultLimits{MissingObject: p.MissingObjectTimeout}.WithDefaults(),
	}
	switch {
	case def.Leased:
		def.Apply = port.Deliver(p.leased(), pgstore.DeliverOptions{Timeout: p.Timeout, Policy: def.Policy, Trust: r.trust, Slot: r.ackSlot})
	case p.Each != nil:
		def.Apply = port.Apply(pgstore.Each(p.Each), pgstore.ApplyOptions{Timeout: p.Timeout, AsyncCommit: p.AsyncCommit})
	default:
		def.Apply = port.Apply(p.Batch, pgstore.ApplyOptions{Timeout: p.Timeout, AsyncCommit: p.AsyncCommit})
	}
	return def
}
