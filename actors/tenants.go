package actors

import (
	"context"
	"maps"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
)

// ensureMost is how many rows of projections one transaction makes at most.
const ensureMost = 1000

// tenants are those whose projections have their rows, and in which incarnation of the server they were made. slice is how
// many rows are made in one transaction.
type tenants struct {
	ensured map[string]bool    // shared with work under way: it is replaced, and never changed
	in      engine.Incarnation // 0 before it is known
	slice   int
}

// ensured is what a round of ensure did. It may have done some of it and failed then.
type ensured struct {
	in      engine.Incarnation
	tenants []string // whose rows were made
	slice   int      // how many rows the next slice may make
	more    bool     // there are further tenants
	removed []string // tenants that are there no more
	err     error
}

// ensure makes the rows of the node's projections for tenants that are new to it. It goes on for half of a call's time, in
// slices that commit by themselves; where a slice fails, the next one is half as large.
func (n *node) ensure(ctx context.Context, known map[string]bool, e *ensured) (err error) {
	ctx, cancel := context.WithTimeout(ctx, n.deps.Timing.QueryTimeout/2)
	defer cancel()
	tenants := n.deps.Node.Tenants
	if len(tenants) == 0 {
		if tenants, err = n.listTenants(ctx); err != nil {
			return err
		}
	}
	e.removed = missing(known, tenants)
	fresh := slices.DeleteFunc(slices.Clone(tenants), func(t string) bool { return known[t] })
	for len(fresh) > 0 {
		if ctx.Err() != nil {
			e.more = true
			return nil
		}
		slice := fresh[:min(len(fresh), max(1, e.slice/len(n.deps.Node.Projections)))]
		if err := n.ensureSlice(ctx, slice); err != nil {
			e.slice = max(1, len(slice)*len(n.deps.Node.Projections)/2)
			return err
		}
		e.slice = min(ensureMost, 2*e.slice)
		e.tenants = append(e.tenants, slice...)
		fresh = fresh[len(slice):]
	}
	return nil
}

func (n *node) listTenants(ctx context.Context) ([]string, error) {
	release, err := n.deps.Limiter.read(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return n.deps.Store.Tenants(ctx)
}

func (n *node) ensureSlice(ctx context.Context, tenants []string) error {
	release, err := n.deps.Limiter.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	return n.deps.Store.Ensure(ctx, tenants, n.deps.Node.Projections)
}

// missing returns the tenants whose rows were made and that do not exist any more. A tenant that is made anew needs new rows.
func missing(ensured map[string]bool, tenants []string) (gone []string) {
	there := make(map[string]bool, len(tenants))
	for _, t := range tenants {
		there[t] = true
	}
	for t := range ensured {
		if !there[t] {
			gone = append(gone, t)
		}
	}
	return gone
}

// ensured takes in what a round of ensure did.
func (n *node) ensured(e *ensured) {
	n.tenants.slice = e.slice
	if e.in != n.tenants.in && e.in != 0 {
		e.tenants = nil // in an earlier life of the server
	}
	if len(e.removed) == 0 && len(e.tenants) == 0 {
		return
	}
	all := maps.Clone(n.tenants.ensured)
	for _, t := range e.removed {
		delete(all, t)
	}
	for _, t := range e.tenants {
		all[t] = true
	}
	n.tenants.ensured = all
}

// learned is called with the incarnation of the server. In a new one the rows of projections that this node made may be lost.
func (n *node) learned(ctx actor.Context, in engine.Incarnation) {
	if in == 0 || in == n.tenants.in {
		return
	}
	if n.tenants.in != 0 {
		n.tenants.ensured = make(map[string]bool)
		n.soon(ctx)
	}
	n.tenants.in = in
}

// removed is called when rows of a tenant's projections are gone: the tenant was removed, and may have been created again.
func (n *node) removed(ctx actor.Context, tenant string) {
	if n.tenants.ensured[tenant] {
		n.ensured(&ensured{in: n.tenants.in, slice: n.tenants.slice, removed: []string{tenant}})
		n.soon(ctx)
	}
}
