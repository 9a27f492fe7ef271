package usercode_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/usercode"
)

// A function that returns an error because the context ended has not failed by itself, however soon it returns.
func TestFunctionThatReturnsWhenTheContextEndsIsNotAtFault(t *testing.T) {
	t.Parallel()
	why := errors.New("why")
	late := func() error { return errors.New("late") }
	for range 20_000 {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := usercode.Within(ctx, time.Minute, late, func(ctx context.Context) error {
			cancel(why)
			return ctx.Err()
		})
		if !errors.Is(r.Cause, why) || r.Abandoned {
			t.Fatalf("%+v", r)
		}
	}
}
