package pgstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
)

// deliver runs one delivery of all that is pending. The lease stays as it is.
func (o *owner) deliver(h deliveryFunc, opts engine.DeliverOptions) error {
	o.t.Helper()
	return o.deliverWithin(testContext(o.t), h, opts)
}

func (o *owner) deliverWithin(ctx context.Context, h deliveryFunc, opts engine.DeliverOptions) error {
	o.t.Helper()
	events, err := o.pending()
	if err != nil || len(events) == 0 {
		o.t.Fatalf("there is nothing to deliver: %v", err)
	}
	if opts.Policy.MaxFailureShare == 0 {
		opts.Policy = engine.Policy{MaxFailureShare: -1, MaxParked: -1}
	}
	batch := engine.Batch{Events: events, To: events[len(events)-1].Position}
	return o.store.port().deliver(h, opts)(ctx, o.lease, batch)
}

// wantPartial checks how far a delivery came. It returns what happened then, nil where nothing did.
func wantPartial(t testing.TB, err error, to int64) *engine.Fault {
	t.Helper()
	var partial *engine.PartialResult
	if !errors.As(err, &partial) {
		t.Fatalf("%v is no partial end", err)
	}
	if partial.To != to {
		t.Errorf("done up to %d, want %d: %v", partial.To, to, err)
	}
	if partial.Err == nil {
		return nil
	}
	return classify(partial.Err)
}

// failsAfter acknowledges that many events and does something then.
func failsAfter(n int, then func(ctx context.Context, d engine.Delivery) error) deliveryFunc {
	return func(ctx context.Context, d engine.Delivery) error {
		if n > 0 {
			if err := d.Ack(ctx, d.Events()[n-1].Position); err != nil {
				return err
			}
		}
		return then(ctx, d)
	}
}

func fails(context.Context, engine.Delivery) error { return errOnPurpose }

var errOnPurpose = errors.New("on purpose")

// trustUntil is a Trust that can be changed.
type trustUntil struct {
	until   chan time.Time
	changed chan chan struct{}
}

func newTrust(until time.Time) *trustUntil {
	tr := &trustUntil{until: make(chan time.Time, 1), changed: make(chan chan struct{}, 1)}
	tr.until <- until
	tr.changed <- make(chan struct{})
	return tr
}

func (tr *trustUntil) trust() (time.Time, <-chan struct{}) {
	until, changed := <-tr.until, <-tr.changed
	tr.changed <- changed
	tr.until <- until
	return until, changed
}

func (tr *trustUntil) set(until time.Time) {
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
