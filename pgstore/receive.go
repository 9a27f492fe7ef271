package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/tenancy"
)

// Receive implements store.Control. It holds the migration lock as CreateTenants does. Until the commit, no other
// session sees a new tenant, and appends to an existing one wait.
func (m migrator) Receive(ctx context.Context, r store.Reception) error {
	t, err := m.named(r.Tenant)
	if err != nil {
		return err
	}
	if err := m.notWithin(ctx); err != nil {
		return err
	}
	err = m.lockedBy(ctx, "migration_lock_shared", func(tx pgx.Tx) error {
		if err := m.admit(ctx, tx, t); err != nil {
			return err
		}
		if err := m.onPlainly(ctx, tx).run(r.Fill); err != nil {
			return err
		}
		if r.Hook.Run != nil {
			err := usercode.Run(func() error {
				return m.runStep(ctx, tx, t.name, func(ctx context.Context, tx pgx.Tx, _ string) error {
					return r.Hook.Call(ctx, tx)
				})
			})
			if err != nil {
				return err
			}
		}
		var state tenancy.State
		err := m.onPlainly(ctx, tx).run(func(tx store.Tx) (err error) {
			state, err = r.End(tx)
			return err
		})
		if err != nil || state != tenancy.Archived {
			return err
		}
		return t.closeEvents(ctx, tx, pgerr.TenantArchived)
	})
	return m.lacking(ctx, t.schema, t.absent(ctx, m.missing(err)))
}

// admit creates a tenant, or locks an existing one. Until the transaction ends, nothing else appends to it.
func (m migrator) admit(ctx context.Context, tx pgx.Tx, t namedTenant) error {
	inserted, err := m.insertTenants(ctx, tx, []namedTenant{t})
	if err != nil {
		return err
	}
	if inserted[t.name] {
		return usercode.Run(func() error { return m.fillTenant(ctx, tx, t) })
	}
	locked, err := t.lock(ctx, tx)
	switch {
	case err != nil:
		return err
	case locked.state == tenancy.Dropping:
		return tenancy.ErrDropping
	case locked.state == tenancy.Copying:
		return tenancy.ErrCopying
	}
	return t.openEvents(ctx, tx)
}

// IsSame implements store.Control.
func (s port) IsSame(ctx context.Context, other store.Control) (bool, error) {
	o, ok := other.(port)
	if !ok || o.opts.Schema != s.opts.Schema {
		return false, nil
	}
	own, err := s.identity(ctx, s.pool)
	if err != nil {
		return false, s.missing(err)
	}
	theirs, err := o.identity(ctx, o.pool)
	return own == theirs, o.missing(err)
}
