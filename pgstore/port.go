package pgstore

import "github.com/millrace-go/millrace/internal/engine"

// Port is what a runtime uses of a store: leases, batches, the ends of the tenants' events. It implements
// projection.Store. Who appends and reads events needs nothing of it.
type Port struct{ *Store }

var _ engine.Store = Port{}

// Port returns what a runtime uses of the store.
func (s *Store) Port() Port { return Port{s} }
