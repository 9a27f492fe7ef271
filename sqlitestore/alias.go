package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/millrace-go/millrace/internal/control"
)

// Alias returns the id of the stream that has the alias name. If none has it, a new id gets it, a UUID of version 7.
// All callers get the same id, however many of them ask at once. The stream is empty until the first append to it. An
// alias is never moved, and goes with its tenant. Names are as long as ids of streams: 1 to 500 bytes.
//
// It returns tenancy.ErrUnknown if there is no such tenant. If the alias is free and the tenant takes no appends, it
// returns tenancy.ErrArchived or ErrDropping.
func (t *Tenant) Alias(ctx context.Context, name string) (string, error) {
	if err := t.store.notWithin(ctx); err != nil {
		return "", t.aliasFailed(name, err)
	}
	id, err := t.store.plane().Alias(ctx, t.name, name)
	return id, t.aliasFailed(name, err)
}

// AliasTx is Alias in a transaction of the caller, as in AppendTx. After a rollback the alias is free.
func (t *Tenant) AliasTx(ctx context.Context, tx *sql.Tx, name string) (id string, err error) {
	if err := t.store.ready(ctx); err != nil {
		return "", t.aliasFailed(name, err)
	}
	err = t.store.within(ctx, tx, func() (err error) {
		id, err = control.AliasIn(t.store.on(ctx, tx), t.name, name)
		return err
	})
	return id, t.aliasFailed(name, err)
}

// Alias is Tenant.Alias for projection.DefaultTenant.
func (s *Store) Alias(ctx context.Context, name string) (string, error) {
	return s.tenant.Alias(ctx, name)
}

// AliasTx is Tenant.AliasTx for projection.DefaultTenant.
func (s *Store) AliasTx(ctx context.Context, tx *sql.Tx, name string) (string, error) {
	return s.tenant.AliasTx(ctx, tx, name)
}

func (t *Tenant) aliasFailed(name string, err error) error {
	if err == nil {
		return nil
	}
	return t.wrap("alias", name, err)
}
