package kit

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/eventtype"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Kind is a kind of store.
type Kind struct {
	Name string
	// Has are the needs of tests that the kind meets.
	Has []Need
	// Place makes place for a new store, until the test ends. Connections of 0 means the default.
	Place func(t *testing.T, connections int) (place string)
	// Ready is Place with a store that is migrated and prepared, where that costs less than to migrate it. It may be
	// nil.
	Ready func(t *testing.T, connections int) (place string)
	// Open opens the store at a place, also beside another that is open, as another process does. Without types it has
	// no registry.
	Open func(ctx context.Context, place string, types *eventtype.Types, around ...event.AppendMiddleware) (Store,
		error)
	// Faults are what a handler of this kind can do wrong in its transaction, by name.
	Faults map[string]Fault
	// Types are the types of the kind whose methods programs call, by name.
	Types map[string]reflect.Type
	// Outages are faults of the infrastructure that a handler can meet, by name.
	Outages map[string]func(ctx context.Context, tx Tx) error
}

// Need is what a test needs beside what every kind of store has.
type Need string

const (
	// SeveralNodes means that several runtimes run projections of one store at once. On other stores one runtime runs
	// them, and the others stand by until it ends. A test that only commands or watches from another runtime, or in
	// which one runtime takes over from another, does not need it.
	SeveralNodes Need = "several nodes"
	// ConcurrentWrites means that appends and other batches commit while a batch is open. A handler that only has to
	// keep its projection busy can deliver or fail, and does not need it.
	ConcurrentWrites Need = "concurrent writes"
	// Alone means that no other test of the package runs meanwhile, since the test measures.
	Alone Need = "no other test"
)

// Meets reports whether the kind meets a need.
func (k *Kind) Meets(need Need) bool { return slices.Contains(k.Has, need) }

// MustMeet skips a test unless the kind meets these needs.
func (k *Kind) MustMeet(t *testing.T, needs ...Need) {
	t.Helper()
	for _, need := range needs {
		if need != "" && need != Alone && !k.Meets(need) {
			t.Skipf("%s has no %s", k.Name, need)
		}
	}
}

// Fault is what a handler can do wrong. Says is a part of the error in the dead letter.
type Fault struct {
	Says string
	Fail func(ctx context.Context, tx Tx) error
}

// Store is a store as tests see it.
type Store interface {
	millrace.Store
	Tenant
	Migrate(ctx context.Context) error
	// Prepare makes the tables of the tests: that of Record, that of Arrive, and what Kind.Faults need.
	Prepare(ctx context.Context) error
	Close()
	// ForTenant returns a tenant, whether or not it exists. Tenants lists those that exist, sorted.
	ForTenant(name string) (Tenant, error)
	Tenants(ctx context.Context) ([]string, error)
	CreateTenant(ctx context.Context, name string) (Tenant, error)
	// CreateTenants makes many tenants at once.
	CreateTenants(ctx context.Context, names []string) ([]Tenant, error)
	// ArchiveTenant and UnarchiveTenant are those of the stores, and DropTenant drops a tenant permanently.
	ArchiveTenant(ctx context.Context, name string) error
	UnarchiveTenant(ctx context.Context, name string) error
	DropTenant(ctx context.Context, name string) error
	// Begin begins a transaction on a connection of the caller's own, and InTx runs fn in a transaction of the store.
	Begin(ctx context.Context) (OwnTx, error)
	InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
	DeadLetters(id projection.ID) projection.DeadLetters
	Batch(f BatchFunc) millrace.Handler
	Each(f EventFunc) millrace.Handler
	// Counted is Each for the events of Bundle.Append, by a handler with a Go type of theirs.
	Counted(f EventFunc) millrace.Handler
	// Queued, QueuedEach and QueuedCounted are Batch, Each and Counted for functions that only queue statements.
	Queued(f QueueFunc) millrace.Handler
	QueuedEach(f QueueEventFunc) millrace.Handler
	QueuedCounted(f QueueEventFunc) millrace.Handler
	// Mixed makes a handler of two. counted gets the events of type Counted, with a transaction. noted gets those of
	// type Noted, and queues.
	Mixed(counted EventFunc, noted QueueEventFunc) millrace.Handler
	Hook(f HookFunc) millrace.Hook
	// Numbers returns the columns of a query of one row, which are integers. It runs outside of every transaction of
	// the store.
	Numbers(ctx context.Context, query string) ([]int64, error)
	// Applied returns what a projection recorded, in the order of its records.
	Applied(ctx context.Context, name string) ([]Applied, error)
	// Arrive records an effect outside of every transaction of a handler, and Arrived returns them in order.
	Arrive(ctx context.Context, a Arrival) error
	Arrived(ctx context.Context) ([]Arrival, error)
	// Commands counts the commands on dead letters, and those of them that have not ended.
	Commands(ctx context.Context) (all, open int, err error)
	// Age makes all dead letters have failed that much earlier.
	Age(ctx context.Context, by time.Duration) error
	// Retire retires the name of a projection of a tenant that has no rows, as a swap of versions or another release
	// does. successor is empty if the projection was forgotten.
	Retire(ctx context.Context, id projection.ID, reason engine.RetiredReason, successor string) error
	// Truncate removes the default tenant's events after a position, as a restore of an old backup does. The next event
	// is given the position after it.
	Truncate(ctx context.Context, position int64) error
	// Quarantine makes the projections try their events one by one, as after three crashes. CrashAttempts returns how
	// many attempts were begun and not ended.
	Quarantine(ctx context.Context) error
	CrashAttempts(ctx context.Context) (int, error)
}

// Tenant is one tenant of a store.
type Tenant interface {
	event.Reader
	event.Appender
	Name() string
	State(ctx context.Context) (tenancy.State, error)
	AppendTx(ctx context.Context, tx Tx, stream string, expected event.Expected, events ...event.Event) (event.Appended,
		error)
	Wake()
	// Streams is what package aggregate uses, and Within the same in a transaction.
	aggregate.Store
	Within(tx Tx) aggregate.Store
	Alias(ctx context.Context, name string) (id string, err error)
	AliasTx(ctx context.Context, tx Tx, name string) (id string, err error)
	EraseStream(ctx context.Context, stream, reason string) (event.Erasure, error)
	RedactEvents(ctx context.Context, positions []int64, reason string) (event.Erasure, error)
	Erasures(ctx context.Context) ([]event.Erasure, error)
}

// Tx is a handler's transaction.
type Tx interface {
	// Record records that a projection applied these events. There is no unique index: what is applied twice shows.
	Record(ctx context.Context, name string, events ...event.Envelope) error
	// Erase deletes what a projection recorded.
	Erase(ctx context.Context, name string) error
	// Exec runs a statement in the dialect of the store.
	Exec(ctx context.Context, sql string, args ...any) error
	// Commit ends the transaction, which a handler must not do.
	Commit(ctx context.Context) error
}

// OwnTx is a transaction of a connection that the store does not know. After a commit, Rollback does nothing.
type OwnTx interface {
	Tx
	Rollback(ctx context.Context) error
}

type (
	BatchFunc = func(ctx context.Context, tx Tx, events []event.Envelope) error
	EventFunc = func(ctx context.Context, tx Tx, e event.Envelope) error
	HookFunc  = func(ctx context.Context, tx Tx) error
)

// Applied is an event that a projection recorded.
type Applied struct {
	Position int64
	Stream   string
	Version  int64
}

var kinds = []*Kind{Postgres, SQLite}

// KindOf returns the kind of that name.
func KindOf(name string) *Kind {
	return kinds[slices.IndexFunc(kinds, func(k *Kind) bool { return k.Name == name })]
}

// OnEachStore runs a test on each kind of store that meets its needs.
func OnEachStore(t *testing.T, test func(t *testing.T, kind *Kind), needs ...Need) {
	t.Helper()
	alone := slices.Contains(needs, Alone)
	if !alone {
		t.Parallel()
	}
	for _, kind := range kinds {
		t.Run(kind.Name, func(t *testing.T) {
			if !alone {
				t.Parallel()
			}
			kind.MustMeet(t, needs...)
			test(t, kind)
		})
	}
}

// Run is OnEachStore for a test that needs one new store.
func Run(t *testing.T, test func(t *testing.T, b *Bundle), needs ...Need) {
	t.Helper()
	OnEachStore(t, func(t *testing.T, kind *Kind) { test(t, kind.New(t)) }, needs...)
}
