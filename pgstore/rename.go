package pgstore

import (
	"context"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
)

// Create implements engine.Changes. Where the projection begins is determined before the transaction, which may wait for locks.
func (s port) Create(ctx context.Context, p engine.NewProjection) error {
	begins, err := s.beginsOf(ctx, []engine.NewProjection{p})
	if err != nil {
		return failed(err, "find where %s begins", p.ID())
	}
	return s.plane().Create(ctx, p, func(tx store.Tx) error {
		if begins.in != 0 {
			tx.Exec("check_incarnation", int64(begins.in))
		}
		tx.Exec("ensure_projections", rowArgs([]engine.NewProjection{p}, begins)...)
		return nil
	})
}
