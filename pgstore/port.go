package pgstore

import (
	"context"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/upcast"
	"github.com/millrace-go/millrace/internal/valid"
)

// port implements store.Driver, the part of a store that a runtime uses. The methods are documented there. Comments
// here say what is specific to PostgreSQL.
type port struct {
	store *Store
	*database
	*eventReads
	leases
	health
	tenantChanges
	migrator
}

var _ store.Driver = port{}

// Engine is called by package millrace.
func (s *Store) Engine() store.Driver {
	if s == nil {
		return nil
	}
	return s.port()
}

func (s *Store) port() port {
	db := s.database
	return port{s, db, s.events, leases{db}, health{db}, tenantChanges{db}, s.migrator()}
}

// plane returns the control plane of the store.
func (s *Store) plane() control.Plane { return control.On(s.port()) }

func (s port) Name() string { return reflect.TypeOf(s.store).String() }

func (s port) TxType() reflect.Type { return reflect.TypeFor[pgx.Tx]() }

func (s port) Pooled() bool { return s.server.pooling.Lends }

func (s port) Connections() int { return int(s.pool.Config().MaxConns) }

func (s port) DefaultBatches() int { return 0 }

func (s port) EventTypes() *upcast.Graph { return s.opts.Types.Engine() }

// ConnectionWaits implements engine.Database. Waits include those for connections that the pool opens, while it is not
// full.
func (s port) ConnectionWaits() engine.ConnectionWaits {
	stat := s.pool.Stat()
	return engine.ConnectionWaits{
		Count: stat.EmptyAcquireCount(), Duration: stat.EmptyAcquireWaitTime(), GivenUp: stat.CanceledAcquireCount(),
	}
}

func (s port) NotWithin(ctx context.Context) error { return s.notWithin(ctx) }

func (s port) ValidTenant(name string) error {
	return valid.Tenant(name)
}
