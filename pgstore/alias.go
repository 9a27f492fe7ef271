package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/excerpt"
)

// Alias returns the id of the stream that has the alias name. If none has it, a new id gets it, a UUID of version 7.
// All callers get the same id, however many of them ask at once. The stream is empty until the first append to it. An
// alias is never moved, and goes with its tenant. Names are as long as ids of streams: 1 to 500 bytes.
//
// An alias that exists takes one round trip, and a new one four.
//
// It returns tenancy.ErrUnknown if there is no such tenant. If the alias is free and the tenant takes no appends, it
// returns tenancy.ErrArchived, ErrCopying or ErrDropping.
func (t *Tenant) Alias(ctx context.Context, name string) (string, error) {
	if err := t.store.notWithin(ctx); err != nil {
		return "", aliasFailed(name, err)
	}
	id, err := t.store.plane().Alias(ctx, t.name, name)
	return id, aliasFailed(name, err)
}

// AliasTx is Alias in a transaction of the caller. Others that ask for the same new alias wait until it ends. After a
// rollback the alias is free.
func (t *Tenant) AliasTx(ctx context.Context, tx pgx.Tx, name string) (string, error) {
	id, err := control.AliasIn(t.store.onPlainly(ctx, tx), t.name, name)
	return id, aliasFailed(name, err)
}

// Alias is Tenant.Alias for projection.DefaultTenant.
func (s *Store) Alias(ctx context.Context, name string) (string, error) {
	return s.tenant.Alias(ctx, name)
}

// AliasTx is Tenant.AliasTx for projection.DefaultTenant.
func (s *Store) AliasTx(ctx context.Context, tx pgx.Tx, name string) (string, error) {
	return s.tenant.AliasTx(ctx, tx, name)
}

func aliasFailed(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("alias %s: %w", excerpt.Quoted(name), err)
}
