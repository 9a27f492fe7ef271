package handler

import (
	"cmp"
	"context"
	"slices"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/queued"
	"github.com/millrace-go/millrace/internal/upcast"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
)

// Upcasting returns a handler that selects the stored types of its event types, and whose functions get current events
// in place of the stored ones. The events are upcast where the functions are called: everything else works with stored
// events.
func (h Handler) Upcasting(types *upcast.Graph) (Handler, error) {
	selected, err := types.Select(h.Types)
	if err != nil || !selected.Any() {
		return h, err
	}
	h.Types, h.make = selected.Types, nil
	if apply := h.Apply; apply != nil {
		h.Apply = func(ctx context.Context, tx any, events []event.Envelope) error {
			events, err := current(selected, events)
			if err != nil || len(events) == 0 {
				return err
			}
			return apply(ctx, tx, events)
		}
	}
	if queue := h.Queue; queue != nil {
		h.Queue = func(ctx context.Context, q queued.Queue, events []event.Envelope) error {
			events, err := current(selected, events)
			if err != nil || len(events) == 0 {
				return err
			}
			return queue(ctx, q, events)
		}
	}
	if deliver := h.Deliver; deliver != nil {
		h.Deliver = func(ctx context.Context, d Delivery) error { return deliverCurrent(ctx, d, selected, deliver) }
	}
	return h, nil
}

// current returns the current events of a batch. Its error names the event whose upcaster failed.
func current(selected upcast.Selection, stored []event.Envelope) ([]event.Envelope, error) {
	events, done, err := selected.Upcast(stored)
	if err != nil {
		return nil, upcastFailure(stored[done], err)
	}
	return events, nil
}

func upcastFailure(e event.Envelope, err error) error {
	taken := usercode.Take(err)
	return &projection.EventError{Position: e.Position, Stack: usercode.StackOf(taken), Err: taken}
}

// deliverCurrent delivers the current events of a delivery. If an upcaster fails, those before it are delivered first.
// The failed event is then the first of the next delivery, and fails alone.
func deliverCurrent(ctx context.Context, d Delivery, selected upcast.Selection,
	deliver func(context.Context, Delivery) error) error {
	stored := d.Events()
	events, done, err := selected.Upcast(stored)
	if err == nil && len(events) > 0 && &events[0] == &stored[0] {
		return deliver(ctx, d)
	}
	u := &upcastDelivery{Delivery: d, stored: stored[:done], events: events}
	if left := u.passed(0); left > 0 {
		if err := d.Ack(ctx, stored[left-1].Position); err != nil {
			return err
		}
	}
	switch {
	case len(events) > 0:
		return deliver(ctx, u)
	case err != nil:
		return upcastFailure(stored[done], err)
	}
	return nil
}

// upcastDelivery is a delivery of current events. The handler gets nothing of some stored events: nothing of these is
// selected. They are acknowledged with the event before them. So the next stored event is in Events.
type upcastDelivery struct {
	Delivery
	stored, events []event.Envelope
}

func (u *upcastDelivery) Events() []event.Envelope { return u.events }

func (u *upcastDelivery) Ack(ctx context.Context, position int64) error {
	if at, found := find(u.stored, position); found {
		position = u.stored[u.passed(at+1)-1].Position
	}
	return u.Delivery.Ack(ctx, position)
}

func (u *upcastDelivery) Reject(ctx context.Context, position int64, cause error) error {
	err := u.Delivery.Reject(ctx, position, cause)
	if err != nil {
		return err
	}
	at, _ := find(u.stored, position)
	if to := u.passed(at + 1); to > at+1 {
		return u.Delivery.Ack(ctx, u.stored[to-1].Position)
	}
	return nil
}

// passed returns the index of the first stored event, from an index on, of which something is selected.
func (u *upcastDelivery) passed(from int) int {
	for from < len(u.stored) {
		if _, found := find(u.events, u.stored[from].Position); found {
			break
		}
		from++
	}
	return from
}

// find returns the index of the first event at a position.
func find(events []event.Envelope, position int64) (int, bool) {
	return slices.BinarySearchFunc(events, position,
		func(e event.Envelope, p int64) int { return cmp.Compare(e.Position, p) })
}
