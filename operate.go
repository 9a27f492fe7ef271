package millrace

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/actors"
	"github.com/millrace-go/millrace/internal/backoff"
)

// Operate calls fn, and carries out operations meanwhile: rebuilds, swaps and drops of versions. It runs no
// projections, which continue on other nodes. Operations of its projections that the runtime's Admin requests in fn are
// carried out by this process alone, so their hooks run with the rights of this runtime's store. It is for a deployment
// job whose role owns the tables, while the role of the nodes does not: see docs/changing.md. The runtime registers the
// projections whose hooks it runs, as for Run, and must not be running.
//
// Operate calls fn once the store knows this process, and returns the error of fn. The ctx of fn ends with ctx. If fn
// returns while an operation is open, or if this process dies, any node that registers the projection carries the
// operation out. A store in a file belongs to one process: there Operate waits until no other process runs projections.
func (r *Runtime) Operate(ctx context.Context, fn func(ctx context.Context) error) error {
	r.mu.Lock()
	only := &scope{definitions: r.definitions, tenants: r.config.Tenants, onlyOperates: true}
	r.mu.Unlock()
	err := r.run(ctx, only, func(ctx context.Context) error {
		if err := known(ctx, r.running()); err != nil {
			return err
		}
		return fn(ctx)
	})
	if err != nil {
		return fmt.Errorf("operate: %w", err)
	}
	return nil
}

// known waits until the store has the node, so that other nodes leave its operations to it.
func known(ctx context.Context, deps *actors.Deps) error {
	return backoff.Poll(ctx, 10*time.Millisecond, 250*time.Millisecond,
		func() (bool, error) { return deps.Registry.Session().Connected, nil })
}
