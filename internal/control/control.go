// Package control is the control plane of a runtime, over the transactions of any store: failures, dead letters and
// their commands, operations, resets, partitions, versions, names, states of tenants, lists for a status, aliases and
// descriptions of streams. Its flows are here, with the statements that are one text for both stores. Other statements
// are in each store, under the same name.
package control

import (
	"context"
	"embed"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Statements are the statements that are one text for both stores: see sqlfile.Macros.
//
//go:embed sql/*.sql
var Statements embed.FS

// LockWait bounds one wait of a change for a row of a projection or lease. It is less than the server's
// deadlock_timeout. So if a batch and a change of partitions or names wait for each other, the change gives up first.
const LockWait = 500 * time.Millisecond

// Plane is the control plane of a store, in parts.
type Plane struct {
	base
	Letters
	Operations
	Tenants
	Names
	Reads
}

type (
	// Letters records failures, parks events, and carries out commands on dead letters. The id of a projection selects
	// one partition, or all if its partition is 0. Filters, states and pages are valid, and have their defaults.
	Letters struct{ base }
	// Operations stops projections for what must not run beside them: rebuilds, swaps, resets, re-splits, recoveries.
	Operations struct{ base }
	// Tenants changes the states of tenants, erases persons, and moves tenants between stores.
	Tenants struct{ base }
	// Names creates, renames and forgets projections.
	Names struct{ base }
	// Reads lists projections and nodes for a status, and finds streams.
	Reads struct{ base }
)

// base is what all parts share.
type base struct{ db store.Control }

// On returns the control plane of a store.
func On(db store.Control) Plane {
	b := base{db}
	return Plane{b, Letters{b}, Operations{b}, Tenants{b}, Names{b}, Reads{b}}
}

// Classify returns err as a faults.Fault with its class.
func (p base) Classify(err error) *faults.Fault { return p.db.Classify(err) }

// wrap classifies the error of a statement, and adds what was being done. It returns nil if err is nil.
func (p base) wrap(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(doing, args...), p.db.Classify(err).OfStore())
}

// fenced runs fn under the fence of a lease.
func (p base) fenced(ctx context.Context, lease engine.Lease, fn func(tx store.Tx) error, doing string,
	args ...any) error {
	return p.wrap(p.db.Fenced(ctx, lease, fn), doing, args...)
}

// Unknown returns tenancy.ErrUnknown, projection.ErrRetired or projection.ErrUnknownProjection if there is no such
// projection.
func Unknown(v store.View, id projection.ID) error {
	var tenant, found bool
	retired := engine.Retired{Tenant: id.Tenant, Name: id.Name}
	_, err := v.One("projection_exists", []any{id.Tenant, id.Name, id.Partition}, &tenant, &found, &retired.Reason,
		&retired.Successor)
	switch {
	case err != nil:
		return err
	case !tenant:
		return tenancy.ErrUnknown
	case retired.Reason != "":
		return &retired
	case !found:
		return projection.ErrUnknownProjection
	}
	return nil
}
