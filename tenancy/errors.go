package tenancy

import "errors"

// Errors about a tenant.
var (
	// ErrUnknown is returned if the store has no such tenant.
	ErrUnknown = errors.New("unknown tenant")
	// ErrArchived is returned by an append to an archived tenant. Nothing was appended. If the append was part of the
	// caller's transaction, PostgreSQL aborts that transaction; SQLite does not.
	ErrArchived = errors.New("the tenant is archived")
	// ErrDropping is returned by an append to a tenant that is being dropped, and by attempts to create, pause,
	// archive or unarchive such a tenant. In a file, reads return it as soon as the drop has begun to delete events.
	// After the end of the drop, appends and reads return ErrUnknown.
	ErrDropping = errors.New("the tenant is being dropped")
	// ErrDropped is returned if a known tenant's schema, or a table in it, does not exist. The tenant's projections
	// are failed until the schema is restored.
	ErrDropped = errors.New("it was dropped outside of millrace: restore it, or remove the tenant (docs/ownership.md, \"A tenant's schema is gone\")")
	// ErrCopying is returned by an append to a tenant in PostgreSQL that an earlier version of this library copies from
	// a file, and by attempts to pause, archive, unarchive or re-split it. DropTenant removes it if that copy was given
	// up.
	ErrCopying = errors.New("the tenant is being copied from another store")
	// ErrMoved is returned if a move has, or may have, committed the tenant to another store. The error is a
	// *MovedError.
	ErrMoved = errors.New("the tenant has moved to another store, or may have moved")
	// ErrNotEmpty is returned by admin.MoveTenant if the target has a tenant of that name that is not empty.
	ErrNotEmpty = errors.New("the tenant is not empty")
	// ErrRestored is returned if a tenant's events end below a checkpoint: the tenant was restored or truncated. Its
	// projections stop. Admin.RecoverTenant lets them continue. Follow also returns it if the events end below what it
	// has returned.
	ErrRestored = errors.New("events end below the checkpoint: the tenant was restored or truncated")
	// ErrLocked is returned if another session keeps a tenant's events locked against reads, as VACUUM FULL and ALTER
	// TABLE do. The read is tried again. Other tenants are not affected.
	ErrLocked = errors.New("events of the tenant are locked")
	// ErrNeeded is returned by DropTenant of a tenant in PostgreSQL if objects outside of the tenant's schema depend on
	// objects in it.
	ErrNeeded = errors.New("objects outside of the tenant's schema depend on it")
)
