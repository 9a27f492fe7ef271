package transfer

import (
	"context"
	"errors"

	"github.com/millrace-go/millrace/projection"
)

var (
	// ErrOtherTarget is returned if the copy of a source began with another target.
	ErrOtherTarget = errors.New("the store is being copied to another target")
	// ErrOtherSource is returned if the target has the tenant from another source, or is copying it from there.
	ErrOtherSource = errors.New("the tenant is being copied from another source")
	// ErrNotEmpty is returned if the target's tenant has events or projections.
	ErrNotEmpty = errors.New("the tenant exists and is not empty")
)

// Copy identifies the copy of a source. From and To describe both stores for people.
type Copy struct{ ID, From, To string }

// Tenant is a tenant of the source. State is TenantActive or TenantArchived.
type Tenant struct {
	Name string
	// Head is the highest position that was ever given to an event.
	Head   int64
	State  projection.TenantState
	Paused bool
}

// IDs are the highest ids of a source's rows.
type IDs struct{ Projection, DeadLetter, Command int64 }

// State says how far a copy is.
type State int8

const (
	// Unknown means that the target does not have the copy.
	Unknown State = iota
	// Copying means that rows are being copied.
	Copying
	// Verified means that all rows are there, and no tenant is open.
	Verified
	// Opening means that a tenant is open.
	Opening
	// Ended means that the copy is complete.
	Ended
)

// Reader reads the rows of both stores.
type Reader interface {
	// Page returns the next rows after a key, in the order of their keys, and none after the last one. A page is bounded
	// in rows and bytes.
	Page(ctx context.Context, table Table, tenant string, after Row) ([]Row, error)
}

// Source is a store that is copied.
type Source interface {
	Reader
	// Lock excludes other copies of the source and runtimes that own it, until release is called.
	Lock(ctx context.Context) (release func() error, err error)
	// Name describes the source for people.
	Name() string
	// Copy returns the copy for which the source is closed. The ID is empty if the source is open.
	Copy(ctx context.Context) (Copy, error)
	// Closable returns projection.ErrOperationOpen if Close would.
	Closable(ctx context.Context) error
	// Close makes all further writes to the source fail. It releases the leases of owners that died. The caller has the
	// lock. It returns projection.ErrOperationOpen if a projection has an open operation.
	Close(ctx context.Context, c Copy) error
	// Open reverses Close.
	Open(ctx context.Context) error
	// Tenants lists the tenants, sorted by name. It returns an error if one of them is being dropped.
	Tenants(ctx context.Context) ([]Tenant, error)
	// IDs returns the highest ids.
	IDs(ctx context.Context) (IDs, error)
}

// Target is a store that receives a copy. Each method may be called again after an error, even if the first call had
// its effect.
type Target interface {
	// Name describes the target for people.
	Name() string
	// State returns how far a copy is.
	State(ctx context.Context, c Copy) (State, error)
	// Begin records the beginning of a copy, if Take can take these tenants.
	Begin(ctx context.Context, c Copy, tenants []Tenant) error
	// Reserve reserves ids for the copied rows. If the target has no such rows, they keep their ids.
	Reserve(ctx context.Context, c Copy, last IDs) error
	// Take creates the tenant, or takes an empty one. From then on it takes no appends except those of the copy, and none
	// of its projections runs. It returns ErrNotEmpty or ErrOtherSource for other tenants.
	Take(ctx context.Context, c Copy, tenant string) error
	// After returns the key of the last row that was written, or Table.After if there is none, and the number of rows.
	After(ctx context.Context, table Table, tenant string) (Row, int64, error)
	// Write writes rows and their last key in one transaction.
	Write(ctx context.Context, c Copy, table Table, tenant string, rows []Row) error
	// Reader returns a reader of the rows that the target has from a copy.
	Reader(ctx context.Context, c Copy) (Reader, error)
	// Verify records that all rows of the copy are there.
	Verify(ctx context.Context, c Copy) error
	// Open gives a tenant the state of the source, and the positions after its head. It does nothing for a tenant that is
	// open.
	Open(ctx context.Context, c Copy, tenant Tenant) error
	// End records that all tenants are open.
	End(ctx context.Context, c Copy) error
	// Cancel removes what was copied, and opens its tenants, which are empty then. The copy is no longer verified.
	Cancel(ctx context.Context, c Copy) error
	// Forget removes the record of a copy that was cancelled.
	Forget(ctx context.Context, c Copy) error
}
