package sqlitestore

import (
	"context"
	"database/sql"
	"reflect"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/upcast"
	"github.com/millrace-go/millrace/internal/valid"
)

// port implements store.Driver, the part of a store that a runtime uses. The methods are documented there. Comments
// here say what is specific to SQLite.
type port struct {
	store *Store
	*database
	eventReads
	leases
	health
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
	return port{s, db, eventReads{db}, leases{db}, health{db}}
}

// plane returns the control plane of the store.
func (s *Store) plane() control.Plane { return control.On(s.port()) }

func (s port) Name() string { return reflect.TypeOf(s.store).String() }

func (s port) TxType() reflect.Type { return reflect.TypeFor[*sql.Tx]() }

func (s port) Pooled() bool { return false }

// Connections implements engine.Database. One batch runs at a time, beside the reads.
func (s port) Connections() int { return 1 + s.opts.Readers }

// DefaultBatches implements engine.Database. Batches that wait for the writer are no faster, and appends would wait for
// them.
func (s port) DefaultBatches() int { return 1 }

func (s port) EventTypes() *upcast.Graph { return s.opts.Types.Engine() }

// ConnectionWaits implements engine.Database. It counts waits for the file's writer and for readers, within this
// process.
func (s port) ConnectionWaits() engine.ConnectionWaits {
	waits, readers := s.writer.waits.Waits(), s.readers.Stats()
	waits.Count += readers.WaitCount
	waits.Duration += readers.WaitDuration
	return waits
}

func (s port) NotWithin(ctx context.Context) error { return s.notWithin(ctx) }

func (s port) ValidTenant(name string) error {
	return valid.Tenant(name)
}

func (s port) OnWake(w engine.Waker) (remove func()) { return s.store.wakes.On(w) }

// incarnation is the same for every file. Checkpoints are in the same file as events, so a power loss cannot separate
// them, and it ends every process that has read from the file.
const incarnation engine.Incarnation = 1
