package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
)

// beginVersions makes the rows of those later versions that still have none, since their tenants have no earlier ones.
func (s *Store) beginVersions(ctx context.Context, later []engine.NewProjection, begins begins) error {
	if len(later) == 0 {
		return nil
	}
	missing, _, err := s.withoutRows(ctx, s.pool, later)
	if err != nil {
		return failed(err, "list new projections")
	}
	return engine.BeginVersions(ctx, missing, func(err error) *engine.Fault { return classify(err) }, func(p engine.NewProjection) error {
		return s.beginVersion(ctx, p, begins)
	})
}

// beginVersion lets readers of a tenant use a version from the beginning: it retires the earlier versions, inserts the rows, and
// runs the hook, in one transaction. If the tenant has an earlier version by now, it only inserts the rows.
func (s *Store) beginVersion(ctx context.Context, p engine.NewProjection, at begins) error {
	id := p.ID()
	b := newTx(s, id, "the beginning", batchOptions{timeout: p.Timeout, durable: true})
	b.fence = fence{begin: "true", end: fmt.Sprintf("%s.check_transaction('%s')", s.control.quoted, b.name)}
	return b.run(engine.WithProjection(ctx, id), func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lockTenants(ctx, tx, p.Tenant); err != nil {
			return err
		}
		// A node of an earlier release may have created the earlier version in the meantime.
		if missing, _, err := s.withoutRows(ctx, tx, []engine.NewProjection{p}); err != nil || len(missing) == 0 {
			return err
		}
		begins, err := control.BeginVersion(s.on(ctx, tx), id)
		if err == nil {
			err = s.insertProjections(ctx, tx, []engine.NewProjection{p}, at)
		}
		if err != nil || !begins || p.Swap.Run == nil {
			return err
		}
		return p.Swap.Run(ctx, tx)
	})
}
