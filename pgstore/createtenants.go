package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace/internal/migration"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

const (
	// createConnections limits the connections of one CreateTenants. More connections add little, because the server
	// spends its time on the catalog.
	createConnections = 4
	// createdTogether limits the tenants of one transaction. A tenant takes some 20 locks besides those of its steps,
	// and a server with default settings has room for some 6,400.
	createdTogether = 50
)

// CreateTenants creates many tenants, as CreateTenant creates one, and is faster: it uses up to 4 connections of the
// pool, and creates up to 50 tenants in a transaction. Steps of Options.TenantSetup run concurrently for different
// tenants. Tenants that exist are brought to this program's version.
//
// After an error, the transactions that committed stay, and the others have no effect. The error names the tenant at
// fault. After an error, a cancellation or the end of the process, CreateTenants can be called again with the same
// names.
func (s *Store) CreateTenants(ctx context.Context, names ...string) error {
	m := s.migrator()
	missing, err := m.incompleteTenants(ctx, names)
	if err != nil {
		return fmt.Errorf("create tenants: %w", err)
	}
	if err := s.notWithin(ctx); err != nil {
		return fmt.Errorf("create tenants: %w", err)
	}
	connections := min(createConnections, int(s.pool.Config().MaxConns))
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(connections)
	together := min(createdTogether, (len(missing)+connections-1)/connections)
	for batch := range slices.Chunk(missing, max(together, 1)) {
		group.Go(func() error {
			// Transactions that run end by themselves, and no other begins.
			if running.Err() != nil {
				return ctx.Err()
			}
			return m.createBatch(ctx, batch)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.extensions.warn(ctx)
	return nil
}

// incompleteTenants returns the tenants of these names that do not exist, or lack a migration or a step, sorted by
// name.
func (m migrator) incompleteTenants(ctx context.Context, names []string) ([]namedTenant, error) {
	var tenants []namedTenant
	for _, name := range names {
		t, err := m.named(name)
		if err != nil {
			return nil, err
		}
		tenants = append(tenants, t)
	}
	version, err := m.controlVersion(ctx, m.pool)
	if err != nil {
		return nil, m.missing(err)
	}
	if err := migration.Acceptable(version, len(ownMigrations.control)); err != nil {
		return nil, err
	}
	rows, _ := m.pool.Query(ctx, m.control.sql("complete_tenants"), pgx.QueryExecModeExec, names,
		len(ownMigrations.tenant), len(m.opts.TenantSetup))
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	complete := make(map[string]bool, len(list))
	for _, name := range list {
		complete[name] = true
	}
	tenants = slices.DeleteFunc(tenants, func(t namedTenant) bool { return complete[t.name] })
	slices.SortFunc(tenants, func(a, b namedTenant) int { return cmp.Compare(a.name, b.name) })
	return slices.CompactFunc(tenants, func(a, b namedTenant) bool { return a.name == b.name }), nil
}

// createBatch creates tenants in one transaction, and completes those that exist, each in its own. If the server has no
// room for the locks of the transaction, all are created like that, while no other CreateTenants holds locks.
func (m migrator) createBatch(ctx context.Context, tenants []namedTenant) error {
	rest, err := m.createNew(ctx, tenants)
	switch {
	case pgerr.Is(err, pgerr.OutOfMemory):
		rest = tenants
	case err != nil:
		return err
	}
	for _, t := range rest {
		if _, err := m.createTenant(ctx, t.name, ownMigrations); err != nil {
			return m.notCreated(ctx, t.name, err)
		}
	}
	return nil
}

// createNew creates those of the tenants that do not exist, in one transaction, and returns the others. It holds the
// migration lock SHARE: other transactions create tenants meanwhile, and Migrate waits, so that it finds them.
func (m migrator) createNew(ctx context.Context, tenants []namedTenant) (existing []namedTenant, err error) {
	var failed namedTenant
	err = m.lockedBy(ctx, "migration_lock_shared", func(tx pgx.Tx) error {
		inserted, err := m.insertTenants(ctx, tx, tenants)
		if err != nil {
			return err
		}
		for _, t := range tenants {
			if !inserted[t.name] {
				existing = append(existing, t)
				continue
			}
			// A step that panics or ends its goroutine must not end the process.
			if err := usercode.Run(func() error { return m.fillTenant(ctx, tx, t) }); err != nil {
				failed = t
				return err
			}
		}
		return nil
	})
	switch {
	case err == nil:
		return existing, nil
	case failed.name != "":
		return nil, m.notCreated(ctx, failed.name, m.lacking(ctx, failed.schema, err))
	default:
		return nil, fmt.Errorf("create tenants: %w", m.lacking(ctx, tenants[0].schema, err))
	}
}

// insertTenants inserts the rows of tenants that do not exist, and returns their names.
func (m migrator) insertTenants(ctx context.Context, tx pgx.Tx, tenants []namedTenant) (map[string]bool, error) {
	names, schemas := make([]string, len(tenants)), make([]string, len(tenants))
	for i, t := range tenants {
		names[i], schemas[i] = t.name, t.schema
	}
	rows, _ := tx.Query(ctx, m.control.sql("insert_tenants"), pgx.QueryExecModeExec, names, schemas,
		m.control.controlChannel)
	inserted := make(map[string]bool, len(tenants))
	var name string
	_, err := pgx.ForEachRow(rows, []any{&name, nil}, func() error {
		inserted[name] = true
		return nil
	})
	return inserted, err
}

// fillTenant creates the schema of a tenant whose row was inserted, with everything in it.
func (m migrator) fillTenant(ctx context.Context, tx pgx.Tx, t namedTenant) error {
	if err := createTenantSchema(ctx, tx, t); err != nil {
		return err
	}
	return m.completeTenant(ctx, tx, t.name, t.schema, 0, ownMigrations)
}
