package millracetest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/millracetest"
)

type booked struct {
	Cents int64 `json:"cents"`
}

func (booked) EventType() string { return "Booked" }

var errOverdrawn = errors.New("overdrawn")

var balances = aggregate.New("balance",
	aggregate.On(func(cents int64, e event.Of[booked]) int64 { return cents + e.Body.Cents })).
	Check(func(cents int64) error {
		if cents < 0 {
			return errOverdrawn
		}
		return nil
	})

func book(cents ...int64) func(int64) ([]event.Event, error) {
	return func(int64) (events []event.Event, _ error) {
		for _, c := range cents {
			events = append(events, event.New(booked{c}))
		}
		return events, nil
	}
}

func TestGivenWhenThen(t *testing.T) {
	millracetest.Given(t, balances, event.New(booked{5})).When(book(-5, 3)).Then(event.New(booked{-5}),
		event.New(booked{3}))
	millracetest.Given(t, balances, event.New(booked{5})).When(book(-6)).ThenError(errOverdrawn)
	millracetest.Given(t, balances).When(book()).Then()
	again := millracetest.Given(t, balances, event.New(booked{5}))
	again.When(book(3)).Then(event.New(booked{3}))
	again.When(book(-8)).ThenError(errOverdrawn)
	unknown := func(int64) ([]event.Event, error) { return []event.Event{{Type: "Unknown"}}, nil }
	millracetest.Given(t, balances).When(unknown).ThenError(aggregate.ErrUnknownType)
}

func TestGivenFailsTheTest(t *testing.T) {
	for name, test := range map[string]func(t testing.TB){
		"other events": func(t testing.TB) {
			millracetest.Given(t, balances).When(book(1)).Then(event.New(booked{2}))
		},
		"too few events": func(t testing.TB) { millracetest.Given(t, balances).When(book(1)).Then() },
		"a refusal": func(t testing.TB) {
			millracetest.Given(t, balances).When(book(-1)).Then(event.New(booked{-1}))
		},
		"no refusal": func(t testing.TB) { millracetest.Given(t, balances).When(book(1)).ThenError(errOverdrawn) },
		"another error": func(t testing.TB) {
			millracetest.Given(t, balances).When(book(-1)).ThenError(errors.ErrUnsupported)
		},
		"a bad given": func(t testing.TB) { millracetest.Given(t, balances, event.Event{Type: "Unknown"}) },
	} {
		f := &failing{TB: t}
		func() {
			defer func() { _ = recover() }()
			test(f)
		}()
		if f.message == "" {
			t.Errorf("%s does not fail the test", name)
		}
	}
}

// failing records how it fails.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Helper() {}

func (f *failing) Errorf(format string, args ...any) { f.message = fmt.Sprintf(format, args...) }

func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	panic("the test ends")
}
