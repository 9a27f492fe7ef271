package engine

import (
	"context"

	"github.com/millrace-go/millrace/tenancy"
)

// InactiveTenant returns why the projections of a tenant do not run, although they are not paused: it is archived,
// being dropped or being copied, or does not exist. It returns nil for a tenant that is active or paused.
func InactiveTenant(ctx context.Context, lists Lists, name string) error {
	tenants, err := lists.Tenants(ctx, []string{name})
	switch {
	case err != nil:
		return err
	case len(tenants) == 0:
		return tenancy.ErrUnknown
	}
	switch tenants[0].State {
	case tenancy.Archived:
		return tenancy.ErrArchived
	case tenancy.Dropping:
		return tenancy.ErrDropping
	case tenancy.Copying:
		return tenancy.ErrCopying
	}
	return nil
}
