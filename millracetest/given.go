package millracetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
)

// Given begins a test of a decision, without a store:
//
//	millracetest.Given(t, orders, event.New(OrderPlaced{Cents: 30})).
//		When(pay(20)).
//		ThenError(ErrTooLittle)
//
// The aggregate has these events. If they cannot be those of the category, the test fails.
func Given[S any](t testing.TB, c *aggregate.Category[S], events ...event.Event) Scenario[S] {
	t.Helper()
	s := Scenario[S]{t: t, category: c, events: events}
	s.fold()
	return s
}

// Scenario is an aggregate on which a test decides.
type Scenario[S any] struct {
	t        testing.TB
	category *aggregate.Category[S]
	events   []event.Event
}

// fold returns the aggregate. Each decision has one of its own, since folds may change maps.
func (s Scenario[S]) fold() aggregate.Aggregate[S] {
	s.t.Helper()
	a, err := s.category.Fold("test", s.events...)
	if err != nil {
		s.t.Fatalf("given: %v", err)
	}
	return a
}

// When calls a decision, with the conditions of Category.Check.
func (s Scenario[S]) When(decide func(state S) ([]event.Event, error)) Decided {
	s.t.Helper()
	events, err := s.category.Decide(s.fold(), decide)
	return Decided{t: s.t, events: events, err: err}
}

// Decided is the result of a decision.
type Decided struct {
	t      testing.TB
	events []event.Event
	err    error
}

// Then fails the test unless the decision returned these events, by type and body. Without events it must have had
// nothing to append.
func (d Decided) Then(events ...event.Event) {
	d.t.Helper()
	if d.err != nil {
		d.t.Errorf("the decision was refused: %v", d.err)
		return
	}
	if got, want := texts(d.events), texts(events); !slices.EqualFunc(got, want, equalTexts) {
		d.t.Errorf("the decision returned %v, want %v", got, want)
	}
}

// ThenError fails the test unless the decision was refused with an error that is err, as errors.Is says.
func (d Decided) ThenError(err error) {
	d.t.Helper()
	switch {
	case d.err == nil:
		d.t.Errorf("the decision returned %v, want the error %v", texts(d.events), err)
	case !errors.Is(d.err, err):
		d.t.Errorf("the decision was refused: %v, want the error %v", d.err, err)
	}
}

// text is an event as a failed test shows it.
type text struct{ kind, body string }

func (t text) String() string { return fmt.Sprintf("%s %s", t.kind, t.body) }

func texts(events []event.Event) []text {
	list := make([]text, len(events))
	for i, e := range events {
		list[i] = text{e.Type, string(e.Body)}
	}
	return list
}

// equalTexts compares bodies as JSON values.
func equalTexts(a, b text) bool {
	var x, y any
	if a.kind != b.kind {
		return false
	}
	if json.Unmarshal([]byte(a.body), &x) != nil || json.Unmarshal([]byte(b.body), &y) != nil {
		return a.body == b.body
	}
	return reflect.DeepEqual(x, y)
}
