// Package store is the port to a database. For package control it has transactions that run statements by their names.
// Each store has one file for each statement, with the same name, arguments and columns.
//
// Arguments and results are plain Go values, which a store encodes: numbers, texts, booleans, time.Time, time.Duration,
// slices of numbers and texts, and pointers for what may be null. A nil pointer or slice is null. A null time scans as
// the zero time. A statement reads the clock of the store itself: clock_timestamp() in PostgreSQL, :now in SQLite. A
// statement on the events of a tenant has the tenant's name as its first argument.
package store

import (
	"context"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Control runs functions in transactions. fn may run twice, so it sets its results anew each time, and does nothing
// else that stays: a session may have lost its prepared statements.
type Control interface {
	Moves
	// Tx runs fn in a transaction and commits it durably.
	Tx(ctx context.Context, fn func(Tx) error) error
	// Fenced is Tx in a transaction that holds a lease. It returns projection.ErrLeaseLost if the lease is lost, and
	// event.ErrIncarnationChanged. Until the commit, no other node claims the lease.
	Fenced(ctx context.Context, lease engine.Lease, fn func(Tx) error) error
	// Change is Tx under the structural lock of a tenant. fn gets the tenant's state, never tenancy.Paused. If another
	// transaction keeps a lock for long, this one releases its own, so that others run in between, and begins again
	// until ctx ends. It returns tenancy.ErrUnknown.
	Change(ctx context.Context, tenant string, fn func(Tx, tenancy.State) error) error
	// Lend runs a hook of the user in a transaction, and commits it durably.
	Lend(ctx context.Context, l Lending) error
	// Begins returns where new projections begin, except those that begin at the first event. No event up to there can
	// still appear.
	Begins(ctx context.Context, projections []engine.NewProjection) (Begins, error)
	// View runs fn without a transaction: each statement reads what is committed when it begins.
	View(ctx context.Context, fn func(View) error) error
	// ViewIn is View in the incarnation of a lease. It returns event.ErrIncarnationChanged if it ended.
	ViewIn(ctx context.Context, lease engine.Lease, fn func(View) error) error
	// Classify returns err as a Fault with its class.
	Classify(err error) *faults.Fault
	// Lacking adds to the error of a change to the control schema the right that the role lacks, and the role that has
	// it.
	Lacking(ctx context.Context, err error) error
}

// Moves are what tenants need that move between stores.
type Moves interface {
	// Receive runs a reception in one transaction, and commits it durably.
	Receive(ctx context.Context, r Reception) error
	// IsSame reports whether another store is this one: it has the same tenants.
	IsSame(ctx context.Context, other Control) (bool, error)
	// DecideState makes a tenant active or archived, or leaves it as it is. It does not wait until nothing of the
	// tenant runs.
	DecideState(ctx context.Context, tenant string, decide Decision) error
}

// Decision returns the state that a tenant gets, in the transaction that changes it and under the tenant's structural
// lock. It gets the state of the tenant, never tenancy.Paused. It may run more than once.
type Decision func(tx Tx, state tenancy.State) (to tenancy.State, err error)

// Holder is a store of a user, which has a driver.
type Holder interface{ Engine() Driver }

// DriverOf returns the driver of a store, nil if there is none.
func DriverOf(h Holder) Driver {
	if h == nil {
		return nil
	}
	return h.Engine()
}

// Driver is what a store does itself: the interfaces of package engine, cut by what uses them, and transactions for
// package control. Every method is safe for concurrent use and bounded by its context.
type Driver interface {
	engine.Database
	engine.Runner
	engine.Events
	engine.Ownership
	engine.Lists
	engine.Health
	Control
}

// Begins are where new projections begin. In is the incarnation in which that is valid, 0 for any.
type Begins struct {
	At map[projection.ID]Begin
	In engine.Incarnation
}

// Begin is the checkpoint with which a projection begins in the tenant with this key. In a tenant that was created
// again it is not valid.
type Begin struct {
	Checkpoint int64
	Tenant     int32
}

// Reception is a transaction in which a tenant comes from another store.
type Reception struct {
	Tenant string
	// Fill is called first. The store has created the tenant, or it takes no appends until the commit.
	Fill func(tx Tx) error
	// Hook runs with the transaction after Fill.
	Hook handler.Hook
	// End is called before the commit, and returns the state that the tenant gets, which is active or archived.
	End func(tx Tx) (tenancy.State, error)
}

// Lending is a transaction that is lent to a hook of the user. It has the guards and limits of a batch. Nothing is
// committed if the hook ended the transaction.
type Lending struct {
	// ID is the projection of the hook. What describes the transaction in errors.
	ID   projection.ID
	What string
	// Rows are the leases of the hook's projections. As with batches of these, EndBatches ends the session.
	Rows []int32
	// Before is called first. It reports whether the hook runs.
	Before func(tx Tx) (runs bool, err error)
	// Hook runs within Timeout.
	Hook    handler.Hook
	Timeout time.Duration
	// After is called before the commit, unless it is nil.
	After func(tx Tx) error
}

// View runs statements that read.
type View interface {
	// One runs a statement that returns or changes at most one row, and scans a returned row into results. It reports
	// whether there was one.
	One(statement string, args []any, results ...any) (bool, error)
	// Each scans each row of a statement into results and calls fn, which must not use the transaction.
	Each(statement string, args, results []any, fn func() error) error
}

// Tx is a transaction. After an error of one of its calls, all later ones return that error, and nothing is committed.
//
// Exec, Must, Later, Lock, Notify and EndBatches need not wait for the database. Their errors are those of the next One
// or Each, or of the commit. They run in the order of the calls, each as a statement of its own that sees what is
// committed when it begins.
type Tx interface {
	View
	Exec(statement string, args ...any)
	// Must is Exec of a statement that changes a row. If it changes none, the error is otherwise.
	Must(otherwise error, statement string, args ...any)
	// Later is One whose results are set, if there was a row, when the next One or Each returns, or after the commit.
	Later(statement string, args []any, results ...any)
	// Lock takes the structural locks of tenants. What follows sees the commits of the previous holders.
	Lock(tenants ...string)
	// Notify notifies the nodes after the commit.
	Notify(n engine.Notice)
	// EndBatches ends the sessions, after the commit, in which batches of these leases are left that began before this
	// transaction. They cannot commit any more, but may hold locks on read models.
	EndBatches(rows ...int32)
}

// OrNull returns null for the zero value, as an argument of a statement.
func OrNull[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}
