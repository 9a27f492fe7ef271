package pgstore

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// badTenantsNamed is how many bad tenants the error of a Migrate names. Thousands may fail for one reason.
const badTenantsNamed = 20

// badTenants are the errors of the tenants that could not be migrated.
type badTenants struct {
	errs []error
	more int
}

func (b *badTenants) add(tenant string, err error) {
	if len(b.errs) == badTenantsNamed {
		b.more++
		return
	}
	b.errs = append(b.errs, fmt.Errorf("migrate tenant %q: %w", tenant, err))
}

func (b *badTenants) err() error {
	if b.more > 0 {
		return errors.Join(append(b.errs, fmt.Errorf("migrate %d more tenants, which failed as well", b.more))...)
	}
	return errors.Join(b.errs...)
}

// migrateTenants migrates DefaultTenant and then all other tenants that lack something. A bad tenant does not keep the
// others from it. The end of ctx or of the connection ends it.
func (m migrator) migrateTenants(ctx context.Context, known migrations) error {
	var bad badTenants
	// DefaultTenant comes first, and is created if it does not exist.
	_, err := m.createTenant(ctx, projection.DefaultTenant, known)
	badDefault := err != nil && !errors.Is(err, tenancy.ErrDropped)
	if badDefault {
		bad.add(projection.DefaultTenant, err)
		if ends(ctx, err) {
			return bad.err()
		}
	}
	for after := ""; ; {
		outdated, err := m.outdatedTenants(ctx, len(known.tenant), after)
		switch {
		case err != nil:
			return errors.Join(bad.err(), fmt.Errorf("migrate tenants: %w", err))
		case len(outdated) == 0:
			return bad.err()
		}
		for _, after = range outdated {
			if after == projection.DefaultTenant && badDefault {
				continue
			}
			err := m.migrateTenant(ctx, after, known)
			switch {
			case errors.Is(err, tenancy.ErrDropped):
				m.log.Error("tenant not migrated", zap.String("tenant", after), zap.Error(err))
			case err != nil:
				bad.add(after, m.extensions.wrap(ctx, m.pool, after, err))
				if ends(ctx, err) {
					return bad.err()
				}
			}
		}
	}
}

// ends reports whether an error would be that of the next tenant, too.
func ends(ctx context.Context, err error) bool {
	return ctx.Err() != nil || !pgerr.FromServer(err) && pgerr.FromConnection(err)
}
