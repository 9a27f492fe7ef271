// Package projection is what users say about projections: their ids, actions, policies, failures, dead letters and errors.
package projection

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/millrace-go/millrace/event"
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

// WithDefaults returns id with DefaultTenant in place of an empty tenant.
func (id ID) WithDefaults() ID {
	if id.Tenant == "" {
		id.Tenant = DefaultTenant
	}
	return id
}

var (
	// ErrLeaseLost tells that a write was refused because another owner, or a later epoch, holds the lease, or because
	// the checkpoint is not where the writer believed it to be.
	ErrLeaseLost = errors.New("lease lost")
	// ErrIncarnationChanged is returned when the server crashed or was replaced after the data in memory were read, so that
	// they may no longer exist.
	ErrIncarnationChanged = errors.New("the server crashed or was replaced by another one")
	// ErrUnknownProjection tells that nobody registered a projection of that name.
	ErrUnknownProjection = errors.New("unknown projection")
	// ErrUnknownTenant tells that the store has no such tenant.
	ErrUnknownTenant = errors.New("unknown tenant")
	// ErrTenantDropped is returned when a known tenant's schema, or a table in it, does not exist. The tenant's projections
	// are failed until the schema is restored.
	ErrTenantDropped = errors.New("it was dropped outside of millrace: restore it, or remove the tenant (docs/ownership.md, \"A tenant's schema is gone\")")
	// ErrNotPrimary tells that the server is a standby: nothing ever settles there.
	ErrNotPrimary = errors.New("server is not the primary")
	// ErrRestored tells that a tenant's events end below a checkpoint: the tenant was restored or truncated.
	ErrRestored = errors.New("events end below the checkpoint: the tenant was restored or truncated")
	// ErrTenantLocked is returned when another session keeps a tenant's events locked against reads, as VACUUM FULL and ALTER
	// TABLE do. The read is tried again; other tenants are not concerned.
	ErrTenantLocked = errors.New("events of the tenant are locked")
	// ErrPaused tells that a projection is paused.
	ErrPaused = errors.New("projection is paused")
	// ErrStopped tells that a projection is stopped.
	ErrStopped = errors.New("projection is stopped")
	// ErrFailed tells that a projection stopped and waits for a person.
	ErrFailed = errors.New("projection failed")
)

// Token is a text that is the same for every delivery of an event to a projection, and another one for every other event,
// projection, partition and tenant: tenant, name, partition, position and the time of the append with slashes between them,
// escaped as in the path of a URL, so that it consists of printable ASCII characters without spaces and quotes. The time
// distinguishes an event that a crash lost from a later one at its position.
func (id ID) Token(e event.Envelope) string {
	id = id.WithDefaults()
	return fmt.Sprintf("%s/%s/%d/%d/%s", url.PathEscape(id.Tenant), url.PathEscape(id.Name), id.Partition, e.Position,
		strconv.FormatInt(e.Time.UnixMicro(), 36))
}
