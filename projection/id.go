// Package projection is what users say about projections: their ids, actions, policies, failures, dead letters and errors.
package projection

import (
	"fmt"

	"github.com/millrace-go/millrace/internal/excerpt"
)

// DefaultTenant is the tenant of a store whose user never says "tenant".
const DefaultTenant = "default"

// ID names one projection of one tenant, and one partition of it.
type ID struct {
	// Tenant is the tenant whose events are projected; empty means DefaultTenant.
	Tenant string
	// Name is the projection's name.
	Name string
	// Partition is the share of the projection's streams, from 0. A projection without partitions has only 0.
	Partition int
}

// longest is how many bytes the name of a tenant or of a projection has at most. A longer one is bad input.
const longest = 100

// String is tenant/name, and tenant/name/partition where the partition is not 0.
func (id ID) String() string {
	if id.Partition == 0 {
		return excerpt.UpTo(id.Tenant, longest) + "/" + excerpt.UpTo(id.Name, longest)
	}
	return fmt.Sprintf("%s/%s/%d", excerpt.UpTo(id.Tenant, longest), excerpt.UpTo(id.Name, longest), id.Partition)
}
