package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
)

func (s port) Orders(ctx context.Context, node engine.Node, rows []int32) (map[int32]engine.Orders, error) {
	sql, of := s.control.sql("desired_states"), any(rows)
	if rows == nil {
		sql, of = s.control.sql("desired_states_of_node"), node.ID
	}
	found, _ := s.pool.Query(ctx, sql, of)
	states := make(map[int32]engine.Orders)
	var row int32
	var state engine.Orders
	_, err := pgx.ForEachRow(found, []any{&row, &state.Desired, &state.HasCommands}, func() error {
		states[row] = state
		return nil
	})
	return states, wrap(err, "read desired states")
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (s port) Abandoned() int64 { return s.handling.abandoned.Load() }
