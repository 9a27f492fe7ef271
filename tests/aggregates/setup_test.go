package aggregates_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
)

type deposited struct {
	Cents int64  `json:"cents"`
	By    string `json:"by"`
}

func (deposited) EventType() string { return "Deposited" }

type withdrawn struct {
	Cents int64  `json:"cents"`
	By    string `json:"by"`
}

func (withdrawn) EventType() string { return "Withdrawn" }

// account has a map, which the folds change in place, and what only a stored event has.
type account struct {
	Cents    int64            `json:"cents"`
	By       map[string]int64 `json:"by"`
	Versions []int64          `json:"versions"`
}

var (
	errTooLittle = errors.New("too little in the account")
	errNegative  = errors.New("negative account")
)

func (a account) booked(by string, cents, version int64) account {
	if a.By == nil {
		a.By = make(map[string]int64)
	}
	a.By[by] += cents
	a.Cents += cents
	a.Versions = append(a.Versions, version)
	return a
}

var accounts = aggregate.New("account",
	aggregate.On(func(a account, e event.Of[deposited]) account {
		return a.booked(e.Body.By, e.Body.Cents, e.Version)
	}),
	aggregate.On(func(a account, e event.Of[withdrawn]) account {
		return a.booked(e.Body.By, -e.Body.Cents, e.Version)
	}),
)

func deposit(cents int64) func(account) ([]event.Event, error) {
	return func(account) ([]event.Event, error) {
		return []event.Event{event.New(deposited{Cents: cents, By: "d"})}, nil
	}
}

func withdraw(cents int64) func(account) ([]event.Event, error) {
	return func(a account) ([]event.Event, error) {
		if a.Cents < cents {
			return nil, errTooLittle
		}
		return []event.Event{event.New(withdrawn{Cents: cents, By: "w"})}, nil
	}
}

// same returns how two accounts differ.
func same(a, b account) error {
	if a.Cents != b.Cents || !maps.Equal(a.By, b.By) || !slices.Equal(a.Versions, b.Versions) {
		return fmt.Errorf("%+v is not %+v", a, b)
	}
	return nil
}

// folded folds a stream without package aggregate.
func folded(ctx context.Context, r event.Reader, stream string) (a account, version, position int64, err error) {
	for e, err := range r.ReadStream(ctx, stream, 1) {
		if err != nil {
			return a, 0, 0, err
		}
		version, position = e.Version, e.Position
		if e.Redacted() {
			continue
		}
		if of, err := event.As[deposited](e); err == nil {
			a = a.booked(of.Body.By, of.Body.Cents, e.Version)
		} else if of, err := event.As[withdrawn](e); err == nil {
			a = a.booked(of.Body.By, -of.Body.Cents, e.Version)
		}
	}
	return a, version, position, nil
}
