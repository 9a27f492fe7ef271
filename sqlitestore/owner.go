package sqlitestore

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/sqlitestore/internal/ownerlock"
)

// lastOwner returns the id of the node that owns the file, "" if none does, and when that node, or the last owner, was
// seen alive last. A lease has a living owner if its owner is that node. In a transaction that writes, this holds until
// the commit: a node that takes over the file writes its id first.
func (db *database) lastOwner(ctx context.Context, q querier) (living string, seen time.Time, err error) {
	state, err := ownerlock.Inspect(db.path)
	if err != nil || !state.Held {
		return "", state.Beat, err
	}
	_, err = runOne(ctx, q, "owner", nil, &living)
	return living, state.Beat, err
}
