package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// StatusError and InvalidOrderError are errors of the program in docs/failures.md.
type (
	StatusError       struct{ Code int }
	InvalidOrderError struct{ Order string }
)

func (e *StatusError) Error() string       { return fmt.Sprint("status ", e.Code) }
func (e *InvalidOrderError) Error() string { return "order " + e.Order + " is invalid" }

// recipes has the fields of docs/failures.md.
var recipes = millrace.Projection{
	Breaker: projection.BreakerPolicy{IsOutage: func(err error) bool {
		var call *url.Error // of net/http: refused, reset, timed out; but a bad URL is the event's
		var answer *StatusError
		return errors.As(err, &call) && call.Op != "parse" || errors.As(err, &answer) && answer.Code >= 500
	}},
	FailureHandler: func(ctx context.Context, f projection.Failure) projection.Action {
		var bad *InvalidOrderError
		switch {
		case errors.As(f.Err, &bad):
			return projection.ActionParkStream
		case time.Since(f.FirstFailedAt) < time.Hour:
			return projection.ActionRetry
		}
		return projection.ActionStop
	},
}

// replayOrders is the replay of docs/failures.md.
func replayOrders(ctx context.Context, store *pgstore.Store) (projection.CommandResult, error) {
	letters := store.DeadLetters(millrace.ProjectionID{Name: "orders"})
	result, err := letters.Replay(ctx, projection.DeadLetterFilter{Error: "no such product"}, 1000)
	return result, err
}

func TestOutagesOfTheFailuresDocument(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&url.Error{Op: "Post", Err: errors.New("connection refused")}, true},
		{&url.Error{Op: "parse", Err: errors.New("missing protocol scheme")}, false},
		{fmt.Errorf("look up: %w", &StatusError{503}), true},
		{&StatusError{404}, false},
		{&InvalidOrderError{"order-1"}, false},
	} {
		if got := recipes.Breaker.IsOutage(c.err); got != c.want {
			t.Errorf("%v is an outage: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestActionsOfTheFailuresDocument(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(-2 * time.Hour)
	for _, c := range []struct {
		failure projection.Failure
		want    projection.Action
	}{
		{projection.Failure{Err: &InvalidOrderError{"order-1"}, FirstFailedAt: long}, projection.ActionParkStream},
		{projection.Failure{Err: errors.New("busy"), FirstFailedAt: time.Now()}, projection.ActionRetry},
		{projection.Failure{Err: errors.New("busy"), FirstFailedAt: long}, projection.ActionStop},
	} {
		if got := recipes.FailureHandler(t.Context(), c.failure); got != c.want {
			t.Errorf("%v since %v: %v, want %v", c.failure.Err, c.failure.FirstFailedAt, got, c.want)
		}
	}
}

func TestReplayOfTheFailuresDocument(t *testing.T) {
	onRoles(t, func(t *testing.T, _ *pgstore.Store, b *bundle) {
		repaired := false
		p := recipes
		p.Name, p.Handler = "orders", pgstore.Each(func(_ context.Context, _ pgx.Tx, e event.Envelope) error {
			switch {
			case e.Stream == "order-2":
				return &InvalidOrderError{e.Stream}
			case e.Stream == "order-1" && !repaired:
				return projection.Park(errors.New("no such product: 7"))
			}
			return nil
		})
		b.Append("order-1", 1)
		b.Append("order-2", 1)
		last := b.Append("order-3", 1).Positions[0]
		rt := b.Running(millrace.Config{}, p)
		b.Reaches(rt, "orders", last)
		repaired = true
		result, err := replayOrders(b.Ctx, b.store)
		if err != nil || result.Done != 1 || result.Failed != 0 {
			t.Errorf("replayed: %+v, %v", result, err)
		}
		if left := b.DeadLettersOf("orders"); len(left) != 1 || left[0].Stream != "order-2" {
			t.Errorf("still parked: %v", left)
		}
	})
}
