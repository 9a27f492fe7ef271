package projection

// TenantState is the state of a tenant.
type TenantState string

const (
	// TenantActive means that the tenant's projections run, except those that are paused themselves.
	TenantActive TenantState = "active"
	// TenantPaused means that no projection of the tenant runs until the tenant is resumed. Appends work.
	TenantPaused TenantState = "paused"
	// TenantArchived means that the tenant's events are read-only and that no projection of it runs.
	TenantArchived TenantState = "archived"
	// TenantDropping means that a drop of the tenant began and has not ended.
	TenantDropping TenantState = "dropping"
	// TenantCopying means that an earlier version of this library copies the tenant from a file. Until the copy is complete, the tenant
	// takes no appends and no projection of it runs.
	TenantCopying TenantState = "copying"
)
