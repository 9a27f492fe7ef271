package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/valid"
)

// Heads implements engine.Events. One statement reads all of them.
func (r eventReads) Heads(ctx context.Context, tenants []string) (engine.Heads, error) {
	heads := engine.Heads{
		Positions: make(map[string]int64, len(tenants)), Failed: make(map[string]error), Incarnation: incarnation,
	}
	var name string
	var head int64
	err := each(ctx, r.readers, "heads", []any{list(tenants)}, []any{&name, &head}, func() error {
		heads.Positions[name] = head
		return nil
	})
	if err != nil {
		return engine.Heads{}, wrap(err, "read the heads of %d tenants", len(tenants))
	}
	return heads, nil
}

// Settle implements engine.Events. The file has one writer, so the head is settled.
func (r eventReads) Settle(_ context.Context, heads engine.Heads, tenants []string) (map[string]engine.Settled, error) {
	settled := make(map[string]engine.Settled, len(tenants))
	for _, tenant := range tenants {
		if head, found := heads.Positions[tenant]; found {
			settled[tenant] = engine.Settled{Mark: head}
		}
	}
	return settled, nil
}

// Ages implements engine.Events. One statement reads all of them.
func (r eventReads) Ages(ctx context.Context, after []engine.TenantPosition) (map[engine.TenantPosition]engine.EventAge,
	error) {
	rows := make([][]any, len(after))
	for i, p := range after {
		rows[i] = []any{p.Tenant, p.Position}
	}
	ages := make(map[engine.TenantPosition]engine.EventAge, len(after))
	now := time.Now()
	var p engine.TenantPosition
	var micros sql.NullInt64
	err := each(ctx, r.readers, "next_event_times", []any{list(rows)}, []any{&p.Tenant, &p.Position, &micros},
		func() error {
			if micros.Valid {
				at := valid.Time(time.UnixMicro(micros.Int64))
				ages[p] = engine.EventAge{At: at, Age: max(0, now.Sub(at))}
			}
			return nil
		})
	return ages, wrap(err, "read the ages of %d events", len(after))
}

func (r eventReads) Absent(ctx context.Context, tenant string) error {
	t, err := r.named(tenant)
	if err != nil {
		return err
	}
	if _, _, err := t.head(ctx); err != nil {
		return storeFault(err)
	}
	return nil
}
