package tests_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

// A tenant is dropped while its projection is rebuilt. Both calls end, and operations of other tenants go on.
func TestTenantThatIsDroppedDuringARebuild(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenant := b.Tenants(2)[1]
		hooked, done := make(chan bool, 10), make(chan bool)
		rebuilt := b.Rebuildable("p")
		rebuilt.Reset = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
			if id, _ := millrace.ProjectionFrom(ctx); id.Tenant == tenant.Name() {
				hooked <- true
				select {
				case <-done:
				case <-ctx.Done():
				}
			}
			return tx.Erase(ctx, "p")
		})
		rt := b.Running(kit.Quick, rebuilt)
		b.ReachesOf(rt, tenant.Name(), "p", b.AppendTo(tenant, "s", 5))
		ended := make(chan error, 1)
		go func() {
			ended <- rt.Rebuild(b.Ctx, millrace.ProjectionID{Tenant: tenant.Name(), Name: "p"}, admin.ResetOptions{})
		}()
		<-hooked
		dropped := make(chan error, 1)
		go func() { dropped <- b.Store.DropTenant(b.Ctx, tenant.Name()) }()
		kit.Pass(b.Ctx, 50*time.Millisecond) // the drop may be in any of its steps
		close(done)
		b.InTime("the drop", func() { b.Must(<-dropped) })
		b.InTime("the rebuild", func() {
			if err := <-ended; err != nil && !errors.Is(err, tenancy.ErrDropping) &&
				!errors.Is(err, tenancy.ErrUnknown) {
				t.Errorf("the rebuild returned %v", err)
			}
		})
		b.Append("s", 5)
		b.Must(rt.Rebuild(b.Ctx, p, admin.ResetOptions{}))
		b.Applied(rt, b.Head(), "p")
	})
}

// A tenant is archived, or dropped, while a swap waits for its version. The swap ends with that reason.
func TestTenantThatStopsDuringASwap(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for doing, test := range map[string]struct {
			stop func(b *kit.Bundle) error
			want []error
		}{
			"archive": {
				func(b *kit.Bundle) error { return b.Store.ArchiveTenant(b.Ctx, "tenant0") }, []error{
					tenancy.ErrArchived,
				},
			},
			"drop": {func(b *kit.Bundle) error { return b.Store.DropTenant(b.Ctx, "tenant0") },
				[]error{tenancy.ErrDropping, tenancy.ErrUnknown}},
		} {
			t.Run(doing, func(t *testing.T) {
				t.Parallel()
				b := kind.New(t)
				tenant := b.Tenants(2)[1]
				var sound atomic.Bool
				v1, v2 := millrace.Projection{Name: model, Handler: b.Store.Batch(kit.Nothing)}, slowVersion(b, &sound)
				v2.Swap, v2.Drop = nil, nil
				rt := b.Running(kit.Quick, v1, v2)
				b.ReachesOf(rt, "tenant0", model, b.AppendTo(tenant, "a", 2000))
				id := millrace.ProjectionID{Tenant: "tenant0", Name: "model@2"}
				ended := make(chan error, 1)
				go func() { ended <- rt.Swap(b.Ctx, id, admin.SwapOptions{CatchUp: time.Hour}) }()
				b.Eventually("a node carries the swap out", func() bool { return openOperation(b, id).Node != "" })
				b.Must(test.stop(b))
				b.InTime("the swap", func() {
					err := <-ended
					for _, want := range test.want {
						if errors.Is(err, want) {
							return
						}
					}
					t.Errorf("the swap returned %v", err)
				})
			})
		}
	})
}
