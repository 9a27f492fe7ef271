package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// operationWaiter reads operations, and waits for their ends.
type operationWaiter struct {
	store   store.Driver
	plane   control.Plane
	timeout time.Duration
}

// findOpen returns the open operation of a projection.
func (w operationWaiter) findOpen(ctx context.Context, id projection.ID) (engine.Operation, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return w.plane.OpenOperation(ctx, id)
}

// wait waits until an operation of a tenant has ended, also during an outage of the database, and returns its
// error. The operations of a tenant go with it.
func (w operationWaiter) wait(ctx context.Context, tenant string, number int64) error {
	const firstPoll, lastPoll = 5 * time.Millisecond, 200 * time.Millisecond
	var last engine.Operation
	err := backoff.Poll(ctx, firstPoll, lastPoll, func() (over bool, _ error) {
		o, err := w.read(ctx, number)
		switch {
		case errors.Is(err, projection.ErrOperationNotFound):
			return false, cmp.Or(inactive(ctx, w.store, w.timeout, tenant), err)
		case err != nil && (ctx.Err() != nil || w.plane.Classify(err).Passes()):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("%w: %w", projection.ErrOperationPending, err)
		}
		last = o
		return !o.EndedAt.IsZero(), o.Err()
	})
	if err != nil && err == ctx.Err() {
		return fmt.Errorf("operation %d: %w%s: %w", number, projection.ErrOperationPending, pendingBecause(last), err)
	}
	return err
}

func (w operationWaiter) read(ctx context.Context, number int64) (engine.Operation, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return w.plane.Operation(ctx, number)
}

// pendingBecause describes how far an open operation is.
func pendingBecause(o engine.Operation) string {
	switch {
	case o.Number == 0:
		return ""
	case o.Error != "":
		return ", the last try failed (" + o.Error + ")"
	case o.Node == "":
		return ", no node has begun it"
	}
	return ", node " + o.Node + " carries it out"
}
