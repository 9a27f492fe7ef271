package engine

import (
	"context"
	"errors"
	"slices"
)

// LaterVersions returns those projections that are versions from 2 on, in the order of their versions.
func LaterVersions(projections []NewProjection) (later []NewProjection) {
	number := func(p NewProjection) int {
		_, version := p.ID().Version()
		return version
	}
	for _, p := range projections {
		if number(p) > 1 {
			later = append(later, p)
		}
	}
	slices.SortStableFunc(later, func(a, b NewProjection) int { return number(a) - number(b) })
	return later
}

// BeginVersions calls begin for each of these projections. It goes on after errors of hooks, and returns them as an
// *SwapError.
func BeginVersions(ctx context.Context, projections []NewProjection, classify func(error) *Fault, begin func(p NewProjection) error) error {
	failed := &SwapError{Tenants: make(map[string]error)}
	for _, p := range projections {
		err := begin(p)
		if err == nil {
			continue
		}
		if class := classify(err).Class; class == Infrastructure || class == Unclear || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		failed.Tenants[p.Tenant] = err
	}
	if len(failed.Tenants) > 0 {
		return failed
	}
	return nil
}
