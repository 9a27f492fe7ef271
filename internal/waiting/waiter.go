// Package waiting waits until projections have handled events. It asks the actors of this process if the projections
// run here, and reads the rows of the database if they do not.
package waiting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Runtime is the runtime of this process.
type Runtime interface {
	// Running returns what its actors share. It is nil while the runtime is not running.
	Running() *actors.Deps
	// Definition returns how it runs a projection. It is nil if the runtime cannot run the projection.
	Definition(id projection.ID) *engine.Definition
	// KnowsLater reports whether it can run a later version of the projection, with which a tenant may begin.
	KnowsLater(id projection.ID) bool
}

// Waiter waits for projections of a store.
type Waiter struct {
	Store store.Driver
	Plane control.Plane
	// Timeout bounds each call of the database.
	Timeout time.Duration
	// Runtime is nil if this process has none.
	Runtime Runtime
}

// Store is the store of a runtime. With it, admin.New returns an Admin that also knows what the runtime does.
type Store struct {
	Waiter Waiter
	// Patience is how long a projection may have no living owner.
	Patience time.Duration
}

// Engine makes a Store an admin.Store.
func (s Store) Engine() store.Driver { return s.Waiter.Store }

// Running returns what the actors of the runtime share. It is nil without a runtime, and while the runtime is not
// running.
func (w Waiter) Running() *actors.Deps {
	if w.Runtime == nil {
		return nil
	}
	return w.Runtime.Running()
}

// Definition returns how the runtime runs a projection. It is nil without a runtime, and if the runtime cannot run the
// projection.
func (w Waiter) Definition(id projection.ID) *engine.Definition {
	if w.Runtime == nil {
		return nil
	}
	return w.Runtime.Definition(id)
}

// Rounds calls look until that reports that the wait is over, which may be with an error. It returns other errors of
// look at once, except while the database cannot be used. Between the rounds it calls pause, whose context ends after
// the next delay.
func (w Waiter) Rounds(ctx context.Context, delays *backoff.Delays, look func(context.Context) (over bool, err error),
	pause func(context.Context)) error {
	for {
		over, err := look(ctx)
		switch {
		case over:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !w.Plane.Classify(err).Passes():
			return err
		}
		round, cancel := context.WithTimeout(ctx, delays.Next())
		pause(round)
		cancel()
	}
}

// For returns when a projection has handled all events up to position: see admin.Admin.WaitFor.
func (w Waiter) For(ctx context.Context, id projection.ID, position int64) error {
	return w.Rounds(ctx, backoff.New(firstPoll, lastPoll), func(ctx context.Context) (over bool, err error) {
		if deps := w.Running(); deps != nil {
			if err := deps.Registry.WaitFor(ctx, id, position); !errors.Is(err, actors.ErrNotHere) &&
				!w.resumed(ctx, deps, id, position, err) {
				return true, err
			}
		}
		// It runs elsewhere, or nowhere yet.
		rows, err := w.rows(ctx, id)
		var retired *engine.Retired
		switch {
		case errors.As(err, &retired) && retired.ByVersion():
			id.Name = retired.Successor
			return true, w.For(ctx, id, position)
		case err != nil:
			return false, err
		case len(rows) == 0:
			// Its rows are about to be made, if the tenant exists and is not archived.
			err := w.Awake(ctx, id.Tenant)
			return err != nil, err
		}
		done, err := w.reached(rows, position)
		return done || err != nil, err
	}, func(round context.Context) { <-round.Done() })
}

// resumed reports whether a projection that had stopped at an event on this node was resumed. answer is the error that
// WaitFor returned. The notification of the resume may have arrived after that error, or may still be on its way.
func (w Waiter) resumed(ctx context.Context, deps *actors.Deps, id projection.ID, position int64, answer error) bool {
	if !errors.Is(answer, projection.ErrFailed) {
		return false
	}
	if !deps.Registry.Halted(id) {
		now, _ := deps.Registry.Reached(id, position)
		return !errors.Is(now, projection.ErrFailed) // the notification arrived after the answer
	}
	rows, err := w.rows(ctx, id)
	return err == nil && !slices.ContainsFunc(rows,
		func(row engine.ProjectionRow) bool { return !row.Desired.Runs() || row.Halted })
}

// Awake returns an error if a tenant does not exist or its projections do not run. An outage is not an error.
func (w Waiter) Awake(ctx context.Context, tenant string) error {
	state, err := w.state(ctx, tenant)
	if err == nil && !awake(state) {
		err = pausedBecause(state)
	}
	return err
}

// state returns the state of a tenant, tenancy.Active during an outage.
func (w Waiter) state(ctx context.Context, tenant string) (tenancy.State, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	tenants, err := w.Store.Tenants(ctx, []string{tenant})
	switch {
	case err != nil:
		return tenancy.Active, nil
	case len(tenants) == 0:
		return "", tenancy.ErrUnknown
	}
	return tenants[0].State, nil
}

// awake reports whether the projections of a tenant in that state have rows.
func awake(state tenancy.State) bool { return state == tenancy.Active || state == tenancy.Paused }

// Absent returns why a projection without rows gets none: asleep is the reason if its tenant is archived, or being
// dropped. It returns nothing if the rows are about to be made.
func (w Waiter) Absent(ctx context.Context, id projection.ID) (asleep string, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	if err := w.missing(ctx, id); err != nil {
		return "", err
	}
	state, err := w.state(ctx, id.Tenant)
	if err != nil || awake(state) {
		return "", err
	}
	return Asleep(state), nil
}

// pausedBecause returns projection.ErrPaused, with the state of the tenant if that is the reason.
func pausedBecause(state tenancy.State) error {
	if reason := Asleep(state); reason != "" {
		return fmt.Errorf("%w: %s", projection.ErrPaused, reason)
	}
	return projection.ErrPaused
}

// reached reports whether all partitions have reached a position, by their rows or on this node. It returns an error if
// a partition cannot reach it.
func (w Waiter) reached(rows []engine.ProjectionRow, position int64) (done bool, err error) {
	done = true
	deps := w.Running()
	for _, row := range rows {
		switch {
		case row.Checkpoint >= position:
		case !row.Desired.Runs():
			return false, pausedBecause(row.Tenant)
		case row.Failed != "" && (row.OwnerAlive || row.Halted):
			return false, Failure(row.Failed)
		default:
			done = done && reachedHere(deps, row, position)
		}
	}
	return done, nil
}

// Failure returns projection.ErrFailed with the reason, which rows hold as text. The error wraps tenancy.ErrRestored if
// the text ends with it.
func Failure(reason string) error {
	if what, restored := strings.CutSuffix(reason, tenancy.ErrRestored.Error()); restored {
		return fmt.Errorf("%w: %s%w", projection.ErrFailed, what, tenancy.ErrRestored)
	}
	return fmt.Errorf("%w: %s", projection.ErrFailed, reason)
}

// reachedHere reports whether a partition runs on this node and has reached a position. Its checkpoint may lag behind
// it.
func reachedHere(deps *actors.Deps, row engine.ProjectionRow, position int64) bool {
	return deps != nil && deps.Registry.ReachedBy(row.ID, row.Partitions, position)
}

// rows returns the rows of a projection's partitions in the database, or the row of the partition that id names. If
// there are none, it returns an *engine.Retired for a retired name, and projection.ErrUnknownProjection if this runtime
// does not know the projection. It returns no rows and no error if the runtime is about to create them.
func (w Waiter) rows(ctx context.Context, id projection.ID) ([]engine.ProjectionRow, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	rows, err := w.Plane.Projections(ctx, engine.ProjectionFilter{Tenants: []string{id.Tenant},
		Names: []string{id.Name}})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, w.missing(ctx, id)
	}
	if id.Partition != 0 {
		rows = slices.DeleteFunc(rows, func(row engine.ProjectionRow) bool { return row.ID != id })
	}
	if len(rows) == 0 {
		return nil, projection.ErrUnknownProjection
	}
	return rows, nil
}

// missing returns the error of rows for a projection without rows.
func (w Waiter) missing(ctx context.Context, id projection.ID) error {
	retired, err := w.retired(ctx, []string{id.Tenant}, []string{id.Name})
	switch {
	case err != nil:
		return err
	case len(retired) > 0:
		return retired[0]
	case w.Definition(id) != nil || w.Runtime != nil && w.Runtime.KnowsLater(id):
		return nil
	}
	return projection.ErrUnknownProjection
}

// retired returns which of these names are retired in these tenants. It leaves out a name that the runtime is about to
// give back to its projection because of RenamedFrom.
func (w Waiter) retired(ctx context.Context, tenants, names []string) ([]*engine.Retired, error) {
	retired, err := w.Plane.Retired(ctx, tenants, names)
	return slices.DeleteFunc(retired, func(r *engine.Retired) bool {
		successor, _ := projection.ID{Name: r.Successor}.Version()
		id := projection.ID{Tenant: r.Tenant, Name: r.Name}
		def := w.Definition(id)
		return r.Reason == engine.Renamed && def != nil && def.RenamedFrom == successor
	}), err
}

// Asleep returns why the projections of a tenant in that state do not run, or an empty string if they do.
func Asleep(state tenancy.State) string {
	switch state {
	case tenancy.Paused:
		return "the tenant is paused"
	case tenancy.Archived:
		return tenancy.ErrArchived.Error()
	case tenancy.Dropping:
		return tenancy.ErrDropping.Error()
	case tenancy.Copying:
		return tenancy.ErrCopying.Error()
	}
	return ""
}
