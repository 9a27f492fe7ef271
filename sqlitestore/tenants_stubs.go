package sqlitestore

import (
	"context"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

func (s port) Tenants(ctx context.Context, names []string) ([]engine.Tenant, error) { panic("not yet") }

func (s port) SetTenantDesired(ctx context.Context, tenant string, desired engine.DesiredState) error {
	panic("not yet")
}

func (s port) SuspensionEnded(ctx context.Context, tenant string) (free bool, err error) {
	panic("not yet")
}

func (s port) Repartition(ctx context.Context, id projection.ID, n int) error { panic("not yet") }
