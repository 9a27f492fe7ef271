package millrace

import (
	"fmt"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/handler"
)

// Hook is a function that a projection runs in a transaction of the store, beside its handler. pgstore.Hook and
// sqlitestore.Hook are Hooks. The function gets a context from which ProjectionFrom returns the projection, and
// TenantFrom its tenant.
type Hook = admin.Hook

// hooks returns the hooks of the projection, or an error if the store cannot run one of them.
func (p Projection) hooks(database engine.Database) (hooks engine.Hooks, err error) {
	for _, h := range []struct {
		field string
		hook  Hook
		to    *handler.Hook
		later bool
	}{{"Projection.Reset", p.Reset, &hooks.Reset, false}, {"Projection.Swap", p.Swap, &hooks.Swap, true},
		{"Projection.Drop", p.Drop, &hooks.Drop, true}} {
		if h.hook != nil && h.later && p.Version <= 1 {
			return hooks, fmt.Errorf("%s must not be set: it is for Projection.Version from 2 on, which is %d",
				h.field, p.Version)
		}
		*h.to, err = handler.HookOf(h.field, h.hook, database)
		if err != nil {
			return hooks, err
		}
	}
	return hooks, nil
}
