package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
)

// beginVersions makes the rows of those later versions that still have none, since their tenants have no earlier ones.
func (s *Store) beginVersions(ctx context.Context, later []engine.NewProjection) error {
	if len(later) == 0 {
		return nil
	}
	missing, _, err := s.withoutRows(ctx, s.readers, later)
	if err != nil {
		return err
	}
	return engine.BeginVersions(ctx, missing, func(err error) *engine.Fault { return classify(err) }, func(p engine.NewProjection) error {
		return s.beginVersion(ctx, p)
	})
}

// beginVersion lets readers of a tenant use a version from the beginning: it retires the earlier versions, inserts the rows, and
// runs the hook, in one transaction. If the tenant has an earlier version by now, it only inserts the rows.
func (s *Store) beginVersion(ctx context.Context, p engine.NewProjection) error {
	id := p.ID()
	begins := false
	b := batchTx{store: s, id: id, what: "the beginning", timeout: p.Timeout,
		check: func(ctx context.Context, tx *sql.Tx) (err error) {
			begins = false // the transaction may run twice
			// A process of an earlier release may have created the earlier version in the meantime.
			if missing, _, err := s.withoutRows(ctx, tx, []engine.NewProjection{p}); err != nil || len(missing) == 0 {
				return err
			}
			begins, err = control.BeginVersion(s.on(ctx, tx), id)
			if err == nil {
				err = insertProjections(ctx, tx, []engine.NewProjection{p})
			}
			return err
		},
		change: func(context.Context, *sql.Tx) error { return nil },
	}
	return b.run(engine.WithProjection(ctx, id), func(ctx context.Context, tx *sql.Tx) error {
		if !begins || p.Swap.Run == nil {
			return nil
		}
		return p.Swap.Run(ctx, tx)
	})
}
