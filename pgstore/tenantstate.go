package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/migration"
	"github.com/millrace-go/millrace/tenancy"
)

func (s port) Tenants(ctx context.Context, names []string) ([]engine.Tenant, error) {
	tenants, err := s.readTenants(ctx, ownMigrations, names)
	return tenants, wrap(err, "list tenants")
}

// OldestSnapshot implements engine.Lists. It leaves out its own session.
func (s port) OldestSnapshot(ctx context.Context) (snapshot engine.Snapshot, err error) {
	var age float64
	err = s.pool.QueryRow(ctx, s.control.sql("oldest_snapshot"), pgx.QueryExecModeExec).Scan(&snapshot.PID, &age)
	if errors.Is(err, pgx.ErrNoRows) {
		return engine.Snapshot{}, nil
	}
	snapshot.Age = seconds(age)
	return snapshot, wrap(err, "find the oldest snapshot")
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// State returns the state of the tenant. It returns tenancy.ErrUnknown if there is no such tenant.
func (t *Tenant) State(ctx context.Context) (tenancy.State, error) {
	found, err := t.store.readTenants(ctx, ownMigrations, []string{t.name})
	if err == nil && len(found) == 0 {
		err = tenancy.ErrUnknown
	}
	if err != nil {
		return "", fmt.Errorf("state of tenant %q: %w", t.name, err)
	}
	return found[0].State, nil
}

// readTenants returns the tenants of these names, or all if names is nil, sorted by name.
func (db *database) readTenants(ctx context.Context, m migrations, names []string) ([]engine.Tenant, error) {
	var version int
	var found, states []string
	var ids []int32
	err := db.pool.QueryRow(ctx, db.control.sql("tenants"), pgx.QueryExecModeExec, names).Scan(&version, &found, &ids,
		&states)
	if err != nil {
		return nil, db.missing(err)
	}
	if err := migration.Acceptable(version, len(m.control)); err != nil {
		return nil, err
	}
	tenants := make([]engine.Tenant, len(found))
	for i, name := range found {
		tenants[i] = engine.Tenant{Row: ids[i], Name: name, State: tenancy.State(states[i])}
	}
	slices.SortFunc(tenants, func(a, b engine.Tenant) int { return strings.Compare(a.Name, b.Name) })
	return tenants, nil
}

// Tenants lists the tenants in any state, sorted. It returns ErrNotMigrated if Migrate was not called, or only by an
// older version, and ErrSchemaTooNew as Migrate does.
func (s *Store) Tenants(ctx context.Context) ([]string, error) {
	tenants, err := s.readTenants(ctx, ownMigrations, nil)
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	names := make([]string, len(tenants))
	for i, t := range tenants {
		names[i] = t.Name
	}
	return names, nil
}
