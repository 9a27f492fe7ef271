package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// settledMarks reads the settled marks of tenants.
type settledMarks struct {
	store   store.Driver
	timeout time.Duration
}

// require returns the incarnation of the server in which a position is settled. It waits for a gap below the position
// to close, but not for transactions that hold the settled mark back.
func (m settledMarks) require(ctx context.Context, tenant string, position int64) (engine.Incarnation, error) {
	poller := m.store.TailPoller(tenant)
	for {
		update, err := m.poll(ctx, poller)
		switch {
		case errors.Is(err, tenancy.ErrRestored):
			return m.requireRestored(ctx, tenant, position)
		case err != nil:
			return 0, err
		case update.Mark >= position:
			return update.Incarnation, nil
		case update.Held != nil:
			return 0, fmt.Errorf("%w: %d, which %s hold back",
				projection.ErrNotSettled, update.Mark, strings.Join(update.Held.Holders, ", "))
		case !update.More && update.Again == 0:
			return 0, fmt.Errorf("%w: %d", projection.ErrNotSettled, update.Mark)
		}
		if err := backoff.New(max(update.Again, time.Millisecond), time.Second).Wait(ctx); err != nil {
			return 0, err
		}
	}
}

func (m settledMarks) poll(ctx context.Context, poller engine.TailPoller) (engine.TailUpdate, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	return poller.Poll(ctx)
}

// requireRestored is require for a tenant whose checkpoints may be above its last event. Then no position counts as
// settled because a projection has handled it.
func (m settledMarks) requireRestored(ctx context.Context, tenant string, position int64) (engine.Incarnation, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	id := projection.ID{Tenant: tenant}
	begins, err := m.store.Begins(ctx,
		[]engine.NewProjection{{Tenant: tenant, Start: projection.Start{Position: position + 1}}})
	if err != nil {
		return 0, err
	}
	at, found := begins.At[id]
	switch {
	case !found:
		return 0, cmp.Or(inactive(ctx, m.store, m.timeout, tenant), tenancy.ErrUnknown)
	case at.Checkpoint < position:
		return 0, fmt.Errorf("%w: %d", projection.ErrNotSettled, at.Checkpoint)
	}
	return begins.In, nil
}

// inactive returns why the projections of a tenant do not run, nil if a user paused them or they run.
func inactive(ctx context.Context, s store.Driver, timeout time.Duration, tenant string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return engine.InactiveTenant(ctx, s, tenant)
}
