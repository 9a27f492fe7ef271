package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/lifecycle"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/tenancy"
)

// MoveAction says what a projection of a moved tenant does in its new store.
type MoveAction int

const (
	// MoveKeep means that the projection continues at its checkpoint. MoveOptions.ReadModels must copy the read model,
	// unless it is in neither store or there is none, as for deliveries.
	MoveKeep MoveAction = iota + 1
	// MoveRebuild means that the projection begins at the first event, with an empty read model. Its dead letters,
	// parked streams, commands and failures are not kept. It keeps its token, partitions and desired state.
	MoveRebuild
)

// Hook is a function that runs in a transaction of a store. pgstore.Hook and sqlitestore.Hook are Hooks.
type Hook interface {
	// Engine is for packages of this module.
	Engine() handler.Hook
}

// MoveOptions configures MoveTenant.
type MoveOptions struct {
	// Projections has MoveKeep or MoveRebuild for the name of each projection of the tenant. MoveTenant refuses to
	// begin if one is missing. Other names are ignored. Required, unless the tenant has no projections.
	Projections map[string]MoveAction
	// ReadModels copies the tenant's read models. It is a pgstore.Hook or a sqlitestore.Hook, by the kind of the
	// target, and runs in the transaction that moves the tenant, with the search path of the tenant's handlers. If that
	// is rolled back, a repeat runs it again. Default: none is copied.
	ReadModels Hook
	// Active makes the tenant active in the target even if it was archived in the source before the move. Default: it
	// is archived in the target if it was archived in the source. A repeat of an interrupted move goes by the state
	// before the first try.
	Active bool
	// Progress is called after each page of rows and each table. It must not block for long. Default: not called.
	Progress func(MoveProgress)
}

// MoveProgress says how far a move is.
type MoveProgress struct {
	// Table is the kind of rows, such as events.
	Table string
	// Rows is the number of its rows in the target so far. If Compared is set, they were all compared with those of the
	// source.
	Rows     int64
	Compared bool
}

// MoveReport says what was moved.
type MoveReport struct {
	// Earlier reports that an earlier call has moved the tenant. The other fields are not set then.
	Earlier bool
	// Head is the last position that was given to an event. The next event gets a higher one.
	Head int64
	// Rows has the number of rows of each kind, all of which were compared.
	Rows map[string]int64
	// State is the tenant's state in the target: tenancy.Active or tenancy.Archived. A paused tenant is also paused
	// there.
	State tenancy.State
}

// MoveTenant moves a tenant to another store, of the same kind or another: its events with their positions, versions
// and times, idempotency keys with their ages, aliases, the record of erasures, and projections with their tokens,
// partitions, checkpoints, desired states, failures, retired names, dead letters, parked streams and commands. Both
// stores must be migrated. The target creates the tenant, unless it has an empty one. An empty name means
// projection.DefaultTenant.
//
// MoveTenant first archives the tenant in the source, as ArchiveTenant does, and waits until nothing of it runs. Then
// it inserts all rows in one transaction of the target, reads them again from both stores and compares them, runs
// MoveOptions.ReadModels, and commits. So the target has everything or nothing. The source keeps the tenant, archived,
// so that a server that was forgotten cannot append to it: drop it there when it is no longer needed.
//
// Both stores keep a record of the move. Until the tenant is dropped in the source, moves back, or the move is
// abandoned, UnarchiveTenant of the source returns tenancy.ErrMoved, since both stores would give the same positions to
// different events. A move to another target returns it too, also in another process.
//
// After an error the target has nothing of the tenant. A tenant that this call has archived is active in the source
// again. A call that repeats an interrupted move leaves it archived. If the error is that of the commit, the tenant may
// have moved: it stays archived in the source, and the error says so. It also stays archived if the process dies.
// Repeat the call then: the record says whether the tenant was active. If the tenant has moved, MoveTenant changes
// nothing and returns a report in which Earlier is set. To give up the move instead, call AbandonMove.
//
// One move of a process runs at a time. If another process writes to the target for 30 seconds, MoveTenant gives up.
//
// MoveTenant returns tenancy.ErrNotEmpty if the target has such a tenant with other events or projections,
// projection.ErrOperationOpen while a rebuild, a swap or a drop of a version is open, and tenancy.ErrUnknown. In these
// cases nothing has changed. It needs the roles that own the tenant's schemas. In a file, nothing else is written while
// MoveTenant reads from it or writes to it.
func MoveTenant(ctx context.Context, from, to Store, tenant string, opts MoveOptions) (MoveReport, error) {
	tenant = engine.FullTenant(tenant)
	m := control.Move{Tenant: tenant, Active: opts.Active, Progress: opts.progress, Wait: tuning.Of(to, 0).MoveWait}
	earlier, err := move(ctx, from, to, &m, opts)
	switch {
	case err != nil:
		return MoveReport{}, fmt.Errorf("move tenant %s: %w", excerpt.Quoted(tenant), err)
	case earlier:
		return MoveReport{Earlier: true}, nil
	}
	return MoveReport{Head: m.Head, Rows: m.Rows, State: m.State}, nil
}

func move(ctx context.Context, from, to Store, m *control.Move, opts MoveOptions) (earlier bool, err error) {
	source, target := store.DriverOf(from), store.DriverOf(to)
	if source == nil || target == nil {
		return false, errors.New("both stores must be set")
	}
	m.ReadModels, err = handler.HookOf("MoveOptions.ReadModels", opts.ReadModels, target)
	if err != nil {
		return false, err
	}
	for name, action := range opts.Projections {
		if action != MoveKeep && action != MoveRebuild {
			return false, fmt.Errorf("MoveOptions.Projections[%q] must be MoveKeep or MoveRebuild: %d", name, action)
		}
		if action == MoveRebuild {
			m.Rebuild = append(m.Rebuild, name)
		}
	}
	return lifecycle.Move(ctx, source, target, m, opts.complete)
}

// AbandonMove gives up the move of a tenant to another store, which target names as tenancy.MovedError does. It is for
// callers who know that the other store does not have the tenant, and that no process moves it any more: if it has,
// both stores give the same positions to different events. A tenant that was active before the move is active again
// afterwards, and UnarchiveTenant works. It needs the role that owns the tenant's schema.
func AbandonMove(ctx context.Context, from Store, tenant, target string) error {
	tenant = engine.FullTenant(tenant)
	source := store.DriverOf(from)
	err := errors.New("the store must be set")
	if source != nil {
		err = lifecycle.AbandonMove(ctx, source, tenant, target)
	}
	if err != nil {
		return fmt.Errorf("abandon the move of tenant %s: %w", excerpt.Quoted(tenant), err)
	}
	return nil
}

// complete returns an error if an action is missing for one of the projections.
func (o MoveOptions) complete(projections []string) error {
	lacking := slices.DeleteFunc(slices.Clone(projections), func(name string) bool { return o.Projections[name] != 0 })
	if len(lacking) > 0 {
		return fmt.Errorf("MoveOptions.Projections lacks projections of the tenant: %s", strings.Join(lacking, ", "))
	}
	return nil
}

func (o MoveOptions) progress(table string, rows int64, compared bool) {
	if o.Progress != nil {
		o.Progress(MoveProgress{Table: table, Rows: rows, Compared: compared})
	}
}
