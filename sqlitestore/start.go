package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Begins implements store.Control. The head of a tenant is settled.
func (r eventReads) Begins(ctx context.Context, projections []engine.NewProjection) (store.Begins, error) {
	b := store.Begins{At: make(map[projection.ID]store.Begin)}
	for _, p := range projections {
		if !p.BeginsLater() {
			continue
		}
		at, found, err := r.beginOf(ctx, p)
		if err != nil {
			return b, err
		}
		if found {
			b.At[p.ID()] = at
		}
	}
	return b, nil
}

// beginOf returns where a new projection begins, unless its tenant does not exist.
func (r eventReads) beginOf(ctx context.Context, p engine.NewProjection) (at store.Begin, found bool, err error) {
	var head int64
	var deleting bool
	found, err = runOne(ctx, r.readers, "tenant_head", []any{p.Tenant}, &at.Tenant, &head, &deleting)
	if err != nil || !found {
		return at, false, wrap(err, "find the last event of tenant %q", p.Tenant)
	}
	at.Checkpoint = head
	switch {
	case p.Start.Position > 0:
		at.Checkpoint = min(p.Start.Position-1, head)
	case !p.Start.Time.IsZero():
		var first sql.NullInt64
		_, err = runOne(ctx, r.readers, "first_since", []any{at.Tenant, p.Start.Time.UnixMicro()}, &first)
		if first.Valid {
			at.Checkpoint = first.Int64 - 1
		}
	}
	return at, true, wrap(err, "find the first event of tenant %q since %v", p.Tenant, p.Start.Time)
}
