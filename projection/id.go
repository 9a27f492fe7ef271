// Package projection has the types by which programs describe projections and their failures.
//
//   - ID names a projection of a tenant.
//   - RetryPolicy, BreakerPolicy and ReplayPolicy are settings of a millrace.Projection. Action is what happens to a
//     failed event.
//   - A handler wraps its error in Retry, Park, ParkStream, Skip or Stop to request an action for its event, and in At
//     to name it.
//   - DeadLetter is a parked event. A store lists, replays and discards them: see DeadLetters.
//   - The errors describe the state of a projection and why it fails.
package projection

import (
	"fmt"

	"github.com/millrace-go/millrace/internal/excerpt"
)

// DefaultTenant is the tenant of programs that use no tenants.
const DefaultTenant = "default"

// ID names one projection of one tenant, and one partition of it.
type ID struct {
	// Tenant is the tenant whose events are projected. Empty means DefaultTenant.
	Tenant string `json:"tenant"`
	// Name is the projection's name.
	Name string `json:"name"`
	// Partition is the number of a partition, from 1 to Projection.Partitions. 0 is the whole projection, split or not.
	Partition int `json:"partition,omitzero"`
}

// longest is how many bytes of a tenant and of a name String shows. Valid ones are not longer.
const longest = 200

// String is tenant/name, or tenant/name/partition if the partition is not 0.
func (id ID) String() string {
	if id.Partition == 0 {
		return excerpt.UpTo(id.Tenant, longest) + "/" + excerpt.UpTo(id.Name, longest)
	}
	return fmt.Sprintf("%s/%s/%d", excerpt.UpTo(id.Tenant, longest), excerpt.UpTo(id.Name, longest), id.Partition)
}
