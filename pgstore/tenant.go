package pgstore

import (
	"context"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
)

// Tenant is the events of one tenant. It is safe for concurrent use.
type Tenant struct {
	store  *Store
	name   string
	schema string
	quoted string // the schema
}

// Name returns the tenant's name.
func (t *Tenant) Name() string { return t.name }

// EventsSchema returns the name of the tenant's schema, not quoted.
func (t *Tenant) EventsSchema() string { return t.schema }

// Append is Tenant.Append for projection.DefaultTenant.
func (s *Store) Append(ctx context.Context, stream string, expected event.Expected, events ...event.Event) (event.Appended, error) {
	return s.tenant.Append(ctx, stream, expected, events...)
}

// AppendTx is Tenant.AppendTx for projection.DefaultTenant.
func (s *Store) AppendTx(ctx context.Context, tx pgx.Tx, stream string, expected event.Expected, events ...event.Event) (_ event.Appended, wake func(), _ error) {
	return s.tenant.AppendTx(ctx, tx, stream, expected, events...)
}

// InTx is Tenant.InTx for projection.DefaultTenant.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return s.tenant.InTx(ctx, fn)
}

// ReadStream is Tenant.ReadStream for projection.DefaultTenant.
func (s *Store) ReadStream(ctx context.Context, stream string, fromVersion int64) iter.Seq2[event.Envelope, error] {
	return s.tenant.ReadStream(ctx, stream, fromVersion)
}

// ReadAll is Tenant.ReadAll for projection.DefaultTenant.
func (s *Store) ReadAll(ctx context.Context, opts ReadOptions) iter.Seq2[event.Envelope, error] {
	return s.tenant.ReadAll(ctx, opts)
}

// EventsSchema is Tenant.EventsSchema for projection.DefaultTenant.
func (s *Store) EventsSchema() string { return s.tenant.schema }
