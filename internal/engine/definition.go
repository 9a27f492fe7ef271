package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/projection"
)

// Definition is a registered projection. Its handler is hidden in Apply, so that no actor knows the database driver.
type Definition struct {
	// Types selects events by type; empty means all.
	Types []string
	// Partitions is how many partitions the projection gets for tenants for which it is new.
	Partitions int
	// RenamedFrom and Start come from millrace.Projection.
	RenamedFrom string
	Start       projection.Start
	// Tenants selects the tenants of the runtime for which the projection runs.
	Tenants TenantFilter
	// MaxEvents, MaxBytes and Timeout come from millrace.Projection, with their defaults.
	MaxEvents int
	MaxBytes  int
	Timeout   time.Duration
	// Weight is the projection's share of its tenant's slots. The partitions of a projection share it.
	Weight int
	// Delivers reports whether the handler works outside of a transaction.
	Delivers bool
	Policy
	Breaker projection.BreakerPolicy
	Faults  faults.Limits
	Batches
	Hooks
}

// Batches are the functions of the store for the batches of a projection, and how far the batches grow.
type Batches struct {
	// Largest is how many events a batch may have while the projection catches up. 0 stands for MaxEvents.
	Largest int
	Apply   ApplyFunc
	// Opening makes the Opening of the next batch. It is nil if batches are not begun in advance.
	Opening func(lease Lease) Opening
	// Shares reports that batches hold no connection while they run: they call Connect.
	Shares bool
}

// Hooks come from millrace.Projection.
type Hooks struct{ Reset, Swap, Drop handler.Hook }

// New returns what the store needs to insert the rows of the projection.
func (d *Definition) New(id projection.ID) NewProjection {
	return NewProjection{Tenant: id.Tenant, Name: id.Name, Partitions: d.Partitions, RenamedFrom: d.RenamedFrom,
		Start: d.Start,
		Swap:  d.Swap, Timeout: d.Timeout}
}

// Allows returns why the projection must not carry out an operation, nil if it may.
func (d *Definition) Allows(o Operation) error {
	if o.Kind == OperationRebuild && d.Delivers {
		var options RebuildOptions
		if err := o.Decode(&options); err != nil {
			return err
		}
		if !options.Redeliver {
			return projection.ErrDelivers
		}
	}
	return d.HasHook(o.Kind)
}

// HasHook returns projection.ErrNoHook if the projection does not have the hook that an operation needs.
func (d *Definition) HasHook(kind OperationKind) error {
	if hook, field := d.Hook(kind); hook.Run == nil && kind.NeedsHook() {
		return fmt.Errorf("%s is not set: %w", "Projection."+field, projection.ErrNoHook)
	}
	return nil
}

// Hook returns the hook of a kind of operation, and the field of millrace.Projection that sets it.
func (d *Definition) Hook(kind OperationKind) (hook handler.Hook, field string) {
	switch kind {
	case OperationRebuild:
		return d.Reset, "Reset"
	case OperationSwap:
		return d.Swap, "Swap"
	case OperationDrop:
		return d.Drop, "Drop"
	}
	return handler.Hook{}, ""
}

// Concerns reports whether the projection handles events of that type.
func (d *Definition) Concerns(eventType string) bool {
	return len(d.Types) == 0 || slices.Contains(d.Types, eventType)
}

// LargestBatch returns how many events a batch may have.
func (d *Definition) LargestBatch() int { return max(d.MaxEvents, d.Largest) }
