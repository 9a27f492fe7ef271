package sqlitestore

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/sqlitestore/internal/ownerlock"
)

// livingOwner returns the id of the node that owns the file, and "" if none does. A lease has a living owner if its
// owner is that node. In a transaction that writes, this holds until the commit: a node that takes over the file writes
// its id first.
func (s *Store) livingOwner(ctx context.Context, q querier) (string, error) {
	id, _, err := s.lastOwner(ctx, q)
	return id, err
}

// lastOwner is livingOwner, and returns when the node that owns the file, or owned it last, was seen alive last.
func (s *Store) lastOwner(ctx context.Context, q querier) (living string, seen time.Time, err error) {
	state, err := ownerlock.Inspect(s.path)
	if err != nil || !state.Held {
		return "", state.Beat, err
	}
	_, err = runOne(ctx, q, "owner", nil, &living)
	return living, state.Beat, err
}
