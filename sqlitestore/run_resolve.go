package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/millrace-go/millrace/internal/engine"
)

// resolve marks the dead letter of a replay resolved.
func (s *Store) resolve(ctx context.Context, tx *sql.Tx, lease engine.Lease, r *engine.Replay) error {
	panic("not yet")
}
