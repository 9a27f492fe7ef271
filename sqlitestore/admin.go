package sqlitestore

import (
	"context"

	"github.com/millrace-go/millrace/internal/engine"
)

func (s port) Orders(ctx context.Context, node engine.Node, rows []int32) (map[int32]engine.Orders, error) {
	owner := ""
	if rows == nil {
		owner = node.ID
	}
	states := make(map[int32]engine.Orders)
	var row int32
	var state engine.Orders
	err := each(ctx, s.readers, "orders", []any{list(rows), owner}, []any{&row, &state.Desired, &state.HasCommands},
		func() error {
			states[row] = state
			return nil
		})
	return states, wrap(err, "read desired states")
}
