package sqlitestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/internal/engine"
)

// Heads implements engine.Store. One statement reads all of them.
func (s port) Heads(ctx context.Context, tenants []string) (engine.Heads, error) {
	heads := engine.Heads{Positions: make(map[string]int64, len(tenants)), Failed: make(map[string]error), Incarnation: incarnation}
	if err := s.headsOf(ctx, tenants, heads.Positions); err != nil {
		return engine.Heads{}, failed(err, "read the heads of %d tenants", len(tenants))
	}
	return heads, nil
}

func (s port) headsOf(ctx context.Context, tenants []string, positions map[string]int64) (err error) {
	rows, err := s.readers.QueryContext(ctx, queries.Text("heads"), list(tenants))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		var head int64
		if err := rows.Scan(&name, &head); err != nil {
			return err
		}
		positions[name] = head
	}
	return rows.Err()
}

func (s port) Absent(ctx context.Context, tenant string) error {
	t, err := s.ForTenant(tenant)
	if err != nil {
		return err
	}
	if _, _, err := t.head(ctx); err != nil {
		return storeFault(err)
	}
	return nil
}

func (s port) Ping(ctx context.Context) error {
	if _, err := number(ctx, s.readers, "user_version"); err != nil {
		return fmt.Errorf("ping: %w", storeFault(err))
	}
	return nil
}
