package tests_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// deliverer is the holder of the lease of a projection that delivers.
type deliverer struct {
	*drawer
	// most is how many events a delivery has at most.
	most int
}

// newDeliverer returns the holder of the lease of a projection with that many pending events.
func newDeliverer(k *kit.Bundle, events int) *deliverer {
	k.T.Helper()
	o := &deliverer{drawerOf(k, "p"), events}
	k.Append("s", events)
	return o
}

// pending returns the next events.
func (o *deliverer) pending() []event.Envelope {
	o.T.Helper()
	events := o.Pending()
	return events[:min(len(events), o.most)]
}

type deliveryFunc = func(ctx context.Context, d handler.Delivery) error

// deliveries returns the deliveries of a handler. It has 30 s, and the lease is good for an hour, unless the options
// say otherwise.
func (o *deliverer) deliveries(h deliveryFunc, opts engine.DeliverOptions) engine.ApplyFunc {
	opts.Timeout = cmp.Or(opts.Timeout, 30*time.Second)
	opts.Slot = func(context.Context, projection.ID) (func(), error) { return func() {}, nil }
	if opts.LeaseDeadline == nil {
		opts.LeaseDeadline = func() (time.Time, <-chan struct{}) { return time.Now().Add(time.Hour), nil }
	}
	return o.Port.Deliver(handler.Handler{Deliver: h}, opts)
}

// deliver runs one delivery of the next events. The lease stays as it is.
func (o *deliverer) deliver(h deliveryFunc, opts engine.DeliverOptions) error {
	o.T.Helper()
	return o.deliverWithin(o.Ctx, h, opts)
}

func (o *deliverer) deliverWithin(ctx context.Context, h deliveryFunc, opts engine.DeliverOptions) error {
	o.T.Helper()
	if opts.Policy.MaxFailureShare == 0 {
		opts.Policy = engine.Policy{OnFailure: projection.ActionPark, MaxFailureShare: -1, MaxParked: -1}
	}
	events := o.pending()
	return o.deliveries(h, opts)(ctx, o.Lease, engine.Batch{Events: events, To: events[len(events)-1].Position})
}

// partial checks how far a delivery came. It returns the fault that ended the delivery, or nil.
func (o *deliverer) partial(err error, to int64) *faults.Fault {
	o.T.Helper()
	var partial *engine.PartialResult
	if !errors.As(err, &partial) {
		o.T.Fatalf("%v is no partial end", err)
	}
	if partial.To != to {
		o.T.Errorf("done up to %d, want %d: %v", partial.To, to, err)
	}
	if partial.Err == nil {
		return nil
	}
	return o.Port.Classify(partial.Err)
}

// failsAfter acknowledges that many events and then calls a function.
func failsAfter(n int, then func(ctx context.Context, d handler.Delivery) error) deliveryFunc {
	return func(ctx context.Context, d handler.Delivery) error {
		if n > 0 {
			if err := d.Ack(ctx, d.Events()[n-1].Position); err != nil {
				return err
			}
		}
		return then(ctx, d)
	}
}

func fails(context.Context, handler.Delivery) error { return errOnPurpose }

var errOnPurpose = errors.New("on purpose")

// deadlineUntil is a LeaseDeadline that can be changed.
type deadlineUntil struct {
	until   chan time.Time
	changed chan chan struct{}
}

func newDeadline(until time.Time) *deadlineUntil {
	tr := &deadlineUntil{until: make(chan time.Time, 1), changed: make(chan chan struct{}, 1)}
	tr.until <- until
	tr.changed <- make(chan struct{})
	return tr
}

func (tr *deadlineUntil) deadline() (time.Time, <-chan struct{}) {
	until, changed := <-tr.until, <-tr.changed
	tr.changed <- changed
	tr.until <- until
	return until, changed
}

func (tr *deadlineUntil) set(until time.Time) {
	<-tr.until
	close(<-tr.changed)
	tr.changed <- make(chan struct{})
	tr.until <- until
}

func positionsDelivered(events []event.Envelope) (positions []int64) {
	for _, e := range events {
		positions = append(positions, e.Position)
	}
	return slices.Clip(positions)
}

// untilEnded waits for the end of ctx and returns its cause.
func untilEnded(t *testing.T, ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Minute):
		t.Error("the handler's context did not end")
		return nil
	}
}
