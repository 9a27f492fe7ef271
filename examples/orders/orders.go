package main

import (
	"errors"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
)

// The events of an order.
type (
	OrderPlaced struct {
		Customer string `json:"customer"`
		Cents    int64  `json:"cents"`
		Currency string `json:"currency"`
	}
	OrderPaid struct {
		Reference string `json:"reference"`
	}
	OrderCancelled struct {
		Reason string `json:"reason"`
	}
)

func (OrderPlaced) EventType() string    { return "OrderPlaced.v2" }
func (OrderPaid) EventType() string      { return "OrderPaid" }
func (OrderCancelled) EventType() string { return "OrderCancelled" }

// Order is what decisions about an order need to know.
type Order struct {
	Placed, Paid, Cancelled bool
	Cents                   int64
}

var orders = aggregate.New("order",
	aggregate.On(func(o Order, e event.Of[OrderPlaced]) Order { return Order{Placed: true, Cents: e.Body.Cents} }),
	aggregate.On(func(o Order, e event.Of[OrderPaid]) Order { o.Paid = true; return o }),
	aggregate.On(func(o Order, e event.Of[OrderCancelled]) Order { o.Cancelled = true; return o }),
)

var (
	ErrPlaced    = errors.New("there is an order with this id")
	ErrNoOrder   = errors.New("there is no such order")
	ErrPaid      = errors.New("the order is paid")
	ErrCancelled = errors.New("the order is cancelled")
	ErrCents     = errors.New("an order costs at least 1 cent")
)

func place(placed OrderPlaced) func(Order) ([]event.Event, error) {
	return func(o Order) ([]event.Event, error) {
		switch {
		case o.Placed:
			return nil, ErrPlaced
		case placed.Cents < 1:
			return nil, ErrCents
		}
		return []event.Event{event.New(placed)}, nil
	}
}

func pay(reference string) func(Order) ([]event.Event, error) {
	return func(o Order) ([]event.Event, error) {
		switch {
		case !o.Placed:
			return nil, ErrNoOrder
		case o.Cancelled:
			return nil, ErrCancelled
		case o.Paid:
			return nil, nil // nothing to do
		}
		return []event.Event{event.New(OrderPaid{Reference: reference})}, nil
	}
}

func cancel(reason string) func(Order) ([]event.Event, error) {
	return func(o Order) ([]event.Event, error) {
		switch {
		case !o.Placed:
			return nil, ErrNoOrder
		case o.Paid:
			return nil, ErrPaid
		case o.Cancelled:
			return nil, nil
		}
		return []event.Event{event.New(OrderCancelled{Reason: reason})}, nil
	}
}
