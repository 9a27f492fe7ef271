package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/millrace-go/millrace/internal/engine"
)

// announce sends a notice to the node that owns the file, in this process or another, when the transaction commits.
func (s *Store) announce(ctx context.Context, tx *sql.Tx, n engine.Notice) error {
	return execute(ctx, tx, "insert_notice", n.Tenant, n.Row, n.Commanded, n.Nodes)
}
