package actors

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/projection"
)

func TestDecideThatGivesNoAnswerIsAnErrorAndNothingWorse(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for name, test := range map[string]struct {
		decide func(context.Context, projection.Failure) projection.Action
		says   string // empty: it answers
	}{
		"answers":  {func(context.Context, projection.Failure) projection.Action { return projection.ActionSkip }, ""},
		"panics":   {func(context.Context, projection.Failure) projection.Action { panic("on purpose") }, "it panicked: on purpose"},
		"nonsense": {func(context.Context, projection.Failure) projection.Action { return 99 }, "action 99"},
		"negative": {func(context.Context, projection.Failure) projection.Action { return -1 }, "action -1"},
		"goexit":   {func(context.Context, projection.Failure) projection.Action { runtime.Goexit(); return 0 }, "ended its goroutine"},
		"hangs":    {func(context.Context, projection.Failure) projection.Action { <-release; return 0 }, "did not answer within"},
	} {
		limit := time.Minute
		if name == "hangs" {
			limit = 10 * time.Millisecond
		}
		action, err := consult(t.Context(), limit, test.decide, projection.Failure{})
		switch {
		case test.says == "" && (err != nil || action != projection.ActionSkip):
			t.Errorf("%s: %v, %v", name, action, err)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}
