package actors

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/machine"
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
		w := worker{log: zap.New(core), def: &engine.Definition{}}
		w.def.FailureHandler = test.decide
		answer := w.ask(t.Context(), projection.Failure{}).(machine.Answer)
		switch said := logs.All(); {
		case test.says == "" && (answer.Action == nil || *answer.Action != projection.ActionSkip || len(said) > 0):
			t.Errorf("%s: %v, %v", name, answer, said)
		case test.says != "" && (answer.Action != nil || len(said) != 1 || !strings.Contains(said[0].ContextMap()["error"].(string), test.says)):
			t.Errorf("%s: %v, %v, want %q", name, answer, said, test.says)
		}
	}
}
