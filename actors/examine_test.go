package actors

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

func TestFailureHandlerThatGivesNoAnswerIsLoggedAndLeavesTheDecisionToThePolicy(t *testing.T) {
	for name, test := range map[string]struct {
		decide func(context.Context, projection.Failure) projection.Action
		says   string // empty: it answers
	}{
		"answers":  {func(context.Context, projection.Failure) projection.Action { return projection.ActionSkip }, ""},
		"panics":   {func(context.Context, projection.Failure) projection.Action { panic("on purpose") }, "on purpose"},
		"nonsense": {func(context.Context, projection.Failure) projection.Action { return 99 }, "action 99"},
		"negative": {func(context.Context, projection.Failure) projection.Action { return -1 }, "action -1"},
	} {
		core, logs := observer.New(zap.ErrorLevel)
		w := worker{fed: &intake{}, deps: &Deps{Log: zap.New(core)}, def: &engine.Definition{}}
		w.def.FailureHandler = test.decide
		answer := w.ask(t.Context(), projection.Failure{}).(machine.Answer)
		switch said := logs.All(); {
		case test.says == "" && (answer.Action == nil || *answer.Action != projection.ActionSkip || len(said) > 0):
			t.Errorf("%s: %v, %v", name, answer, said)
		case test.says != "" && (answer.Action != nil ||
			len(said) != 1 || !strings.Contains(said[0].ContextMap()["error"].(string), test.says)):
			t.Errorf("%s: %v, %v, want %q", name, answer, said, test.says)
		}
	}
}

// classified is a store whose server works.
type classified struct {
	engine.Health
	store.Control
}

func (classified) Probe(context.Context) error { return nil }

func (classified) Classify(err error) *faults.Fault {
	fault := *err.(*faults.Fault)
	return &fault
}

// A handler may depend on another PostgreSQL server, whose errors look like those of the store. The breaker is not
// asked about errors of the batch's own connection.
func TestBreakerIsAskedAboutErrorsOfTheHandler(t *testing.T) {
	for name, test := range map[string]struct {
		fault faults.Fault
		want  bool
	}{
		"an error of the handler":             {faults.Fault{Class: faults.Handler}, true},
		"an unclear one that it returned":     {faults.Fault{Class: faults.Unclear, Returned: true}, true},
		"an unclear one of the batch":         {faults.Fault{Class: faults.Unclear}, false},
		"an outage that it returned":          {faults.Fault{Class: faults.Infrastructure, Returned: true}, true},
		"an outage of the batch's connection": {faults.Fault{Class: faults.Infrastructure}, false},
		"while the server is unreachable": {
			faults.Fault{Class: faults.Infrastructure, Returned: true, Unreachable: true}, false,
		},
		"a request of the handler": {
			faults.Fault{Class: faults.Handler, Err: projection.Skip(errors.New("unwanted"))}, false,
		},
	} {
		deps := &Deps{
			System: NewSystem(zap.NewNop()), Store: Store{Health: classified{}, Plane: control.On(classified{})},
			Timing: Timing{QueryTimeout: time.Minute},
		}
		deps.Init()
		w := worker{fed: &intake{}, deps: deps, def: &engine.Definition{}}
		w.def.Breaker.IsOutage = func(error) bool { return true }
		if test.fault.Err == nil {
			test.fault.Err = errors.New("down")
		}
		if found := w.examine(t.Context(), &test.fault); found.outage != test.want || found.fault == nil {
			t.Errorf("%s: %+v", name, found)
		}
		deps.Wait()
	}
}

// unreachable is a store whose server is away.
type unreachable struct{ classified }

func (unreachable) Probe(context.Context) error { return errors.New("away") }

func TestFaultThatMayBeTheServersIsProbed(t *testing.T) {
	for health, away := range map[engine.Health]bool{classified{}: false, unreachable{}: true} {
		deps := &Deps{
			System: NewSystem(zap.NewNop()), Store: Store{Health: health, Plane: control.On(classified{})},
			Timing: Timing{QueryTimeout: time.Minute},
		}
		deps.Init()
		w := worker{fed: &intake{}, deps: deps, def: &engine.Definition{}}
		found := w.examine(t.Context(), &faults.Fault{Class: faults.Unclear, Probe: true, Err: errors.New("unclear")})
		if found.fault.Unreachable != away || found.fault.Probe {
			t.Errorf("the server is away: %v; found %+v", away, found.fault)
		}
		deps.Wait()
	}
}
