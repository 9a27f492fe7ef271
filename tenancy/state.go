package tenancy

// State is the state of a tenant.
type State string

const (
	// Active means that the tenant's projections run, except those that are paused themselves.
	Active State = "active"
	// Paused means that no projection of the tenant runs until the tenant is resumed. Appends work.
	Paused State = "paused"
	// Archived means that the tenant's events are read-only and that no projection of it runs.
	Archived State = "archived"
	// Dropping means that a drop of the tenant began and has not ended.
	Dropping State = "dropping"
	// Copying means that an earlier version of this library copies the tenant from a file. Until the copy is complete,
	// the tenant takes no appends and no projection of it runs.
	Copying State = "copying"
)
