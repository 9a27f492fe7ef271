package main

import (
	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
)

// The events of a payment, which has the id of its order. The provider makes payments, and answers later.
type (
	PaymentRequested struct {
		Cents    int64  `json:"cents"`
		Currency string `json:"currency,omitzero"` // release 1 has none: the provider takes euros then
	}
	PaymentMade struct {
		Reference string `json:"reference"`
	}
	PaymentDeclined struct{}
	RefundRequested struct {
		Reference string `json:"reference"`
	}
)

func (PaymentRequested) EventType() string { return "PaymentRequested" }
func (PaymentMade) EventType() string      { return "PaymentMade" }
func (PaymentDeclined) EventType() string  { return "PaymentDeclined" }
func (RefundRequested) EventType() string  { return "RefundRequested" }

// Payment is what decisions about a payment need to know.
type Payment struct {
	Requested, Answered, Refunded bool
	Reference, Conversation       string
}

var payments = aggregate.New("payment",
	aggregate.On(func(p Payment, e event.Of[PaymentRequested]) Payment {
		p.Requested, p.Conversation = true, e.CorrelationID
		return p
	}),
	aggregate.On(func(p Payment, e event.Of[PaymentMade]) Payment {
		p.Answered, p.Reference = true, e.Body.Reference
		return p
	}),
	aggregate.On(func(p Payment, e event.Of[PaymentDeclined]) Payment { p.Answered = true; return p }),
	aggregate.On(func(p Payment, e event.Of[RefundRequested]) Payment { p.Refunded = true; return p }),
)

func request(placed OrderPlaced) func(Payment) ([]event.Event, error) {
	return func(p Payment) ([]event.Event, error) {
		if p.Requested {
			return nil, nil
		}
		return []event.Event{event.New(PaymentRequested{Cents: placed.Cents, Currency: placed.Currency})}, nil
	}
}

// answer records the provider's answer, which continues the conversation of the request. A reference is that of a
// payment that was made.
func answer(reference string) func(Payment) ([]event.Event, error) {
	return func(p Payment) ([]event.Event, error) {
		switch {
		case !p.Requested:
			return nil, ErrNoOrder
		case p.Answered:
			return nil, nil
		}
		answered := event.New(PaymentMade{Reference: reference})
		if reference == "" {
			answered = event.New(PaymentDeclined{})
		}
		answered.CorrelationID = p.Conversation
		return []event.Event{answered}, nil
	}
}

func refund(p Payment) ([]event.Event, error) {
	if p.Reference == "" || p.Refunded {
		return nil, nil
	}
	return []event.Event{event.New(RefundRequested{Reference: p.Reference})}, nil
}
