package sqlitestore

import (
	"context"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
)

func (s port) Create(ctx context.Context, p engine.NewProjection) error {
	return s.plane().Create(ctx, p, func(tx store.Tx) error {
		return insertProjections(ctx, tx.(*controlTx).q, []engine.NewProjection{p})
	})
}
