package pgstore

import (
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
)

// port is the part of a store that a runtime uses.
type port struct{ *Store }

var _ engine.Store = port{}

// Engine is for package millrace.
func (s *Store) Engine() engine.Store {
	if s == nil {
		return nil
	}
	return port{s}
}

// Name implements engine.Store.
func (s port) Name() string { return reflect.TypeOf(s.Store).String() }

// TxType implements engine.Store.
func (s port) TxType() reflect.Type { return reflect.TypeFor[pgx.Tx]() }

// Connections implements engine.Store.
func (s port) Connections() int { return int(s.pool.Config().MaxConns) }

// ValidTenant implements engine.Store.
func (s port) ValidTenant(name string) error {
	_, err := s.ForTenant(name)
	return err
}
