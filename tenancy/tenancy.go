// Package tenancy has the states of tenants, the errors about tenants, and the options of their changes. The methods
// that use them are those of both stores, of their tenants, and of admin.Admin.
package tenancy

// DropOptions configures DropTenant of both stores. Confirm must be set.
type DropOptions struct {
	// Confirm must repeat the tenant's name, since a drop cannot be undone.
	Confirm string
	// Dependents also drops the objects outside of the tenant's schema that depend on it: views, functions, foreign
	// keys and so on, as DROP SCHEMA CASCADE does. Set it after you have read the list of them in the error. In a file
	// nothing can depend on a tenant. Default: such a tenant is not dropped, and the error lists the objects.
	Dependents bool
}
