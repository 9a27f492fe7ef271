package tests_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// The names that retire retires in every tenant, and what errors about them say.
var retiredNames = map[string]string{
	"forgotten": "it was forgotten",
	"renamed":   `it was renamed to "kept"`,
	"replaced":  `it was replaced by "kept"`,
}

func retire(b *kit.Bundle, tenants ...string) {
	for _, tenant := range tenants {
		for name := range retiredNames {
			successor := "kept"
			if name == "forgotten" {
				successor = ""
			}
			b.Must(b.Store.Retire(b.Ctx, projection.ID{Tenant: tenant, Name: name}, engine.RetiredReason(name),
				successor))
		}
	}
}

func TestNodeRunsNothingOfRetiredProjections(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenants := b.Tenants(30)
		for _, tenant := range tenants {
			b.AppendTo(tenant, "s", 3)
			retire(b, tenant.Name())
		}
		// A tenant that is unarchived while the node runs gets its rows by a later statement than the others.
		back := tenants[29].Name()
		b.Must(b.Store.ArchiveTenant(b.Ctx, back))
		log, logs := kit.Logs()
		config := kit.Quick
		config.Logger = log
		rt := b.Running(config, b.Recorders("kept", "forgotten", "renamed", "replaced")...)
		for _, tenant := range tenants[:29] {
			b.ReachesOf(rt, tenant.Name(), "kept", 3)
		}
		b.Must(b.Store.UnarchiveTenant(b.Ctx, back))
		b.ReachesOf(rt, back, "kept", 3)
		// A tenant that is created later has no retired projections.
		later, err := b.Store.CreateTenant(b.Ctx, "later")
		b.Must(err)
		b.AppendTo(later, "s", 3)
		for name := range retiredNames {
			b.ReachesOf(rt, "later", name, 3)
		}
		for _, p := range b.StatusOf(rt).Projections {
			if p.ID.Tenant != "later" && p.ID.Name != "kept" {
				t.Errorf("%s exists", p.ID)
			}
		}
		for name, what := range retiredNames {
			entries := logs.FilterMessageSnippet("retired").FilterField(zap.String("projection", name)).All()
			if len(entries) != 1 {
				t.Fatalf("%s: %d entries in the log, want one for all tenants", name, len(entries))
			}
			fields := entries[0].ContextMap()
			if fmt.Sprint(fields["tenants"]) != "29" || !strings.HasSuffix(what, fmt.Sprint(fields["reason"])) {
				t.Errorf("%s: %v", name, fields)
			}
			if applied, err := b.Store.Applied(b.Ctx, name); err != nil || len(applied) != 3 {
				t.Errorf("%s applied %v, %v; want the events of one tenant", name, applied, err)
			}
		}
	})
}

func TestOperationsOnRetiredProjectionsNameTheSuccessor(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		retire(b, projection.DefaultTenant)
		last := b.Append("s", 3).Positions[2]
		rt := b.Running(kit.Quick, b.Recorders("kept", "forgotten", "renamed", "replaced")...)
		b.Reaches(rt, "kept", last)
		other, err := admin.New(b.Store)
		b.Must(err)
		for name, what := range retiredNames {
			id := millrace.ProjectionID{Name: name}
			letters := b.Store.DeadLetters(id)
			all := projection.DeadLetterFilter{All: true}
			operations := map[string]func(ctx context.Context) error{
				"replay": func(ctx context.Context) error {
					_, err := letters.Replay(ctx, all, 1)
					return err
				},
				"discard": func(ctx context.Context) error {
					_, err := letters.Discard(ctx, all, 1)
					return err
				},
				"purge": func(ctx context.Context) error {
					_, err := letters.Purge(ctx, all, 0, 1)
					return err
				},
				"count": func(ctx context.Context) error {
					_, err := letters.Count(ctx, all)
					return err
				},
				"list": func(ctx context.Context) error {
					_, err := letters.List(ctx, projection.DeadLetterPage{})
					return err
				},
			}
			for by, a := range map[string]*admin.Admin{"runtime": rt.Admin, "admin": other} {
				operations["pause by the "+by] = func(ctx context.Context) error { return a.Pause(ctx, id) }
				operations["resume by the "+by] = func(ctx context.Context) error { return a.Resume(ctx, id) }
				operations["repartition by the "+by] = func(ctx context.Context) error {
					return a.Repartition(ctx, id, 3)
				}
				if name != "replaced" {
					operations["wait by the "+by] = func(ctx context.Context) error { return a.WaitFor(ctx, id, last) }
				} else {
					ctx, cancel := context.WithTimeout(b.Ctx, 30*time.Second)
					if err := a.WaitFor(ctx, id, last); err != nil {
						t.Errorf("the wait by the %s does not follow the successor: %v", by, err)
					}
					cancel()
				}
			}
			for doing, do := range operations {
				ctx, cancel := context.WithTimeout(b.Ctx, 30*time.Second)
				err := do(ctx)
				cancel()
				if !errors.Is(err, projection.ErrRetired) || !strings.Contains(err.Error(), what) {
					t.Errorf("%s of %s: %v", doing, name, err)
				}
			}
		}
	})
}

func TestRunUntilIdleNamesRetiredProjections(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Tenants(3)
		b.Append("s", 3)
		retire(b, "tenant1")
		_, err := b.Runtime(millrace.Config{}, b.Recorders("kept", "renamed")...).RunUntilIdle(b.Ctx)
		if !errors.Is(err, projection.ErrRetired) || !strings.Contains(err.Error(), "tenant1/renamed") ||
			!strings.Contains(err.Error(), `renamed to "kept"`) {
			t.Errorf("%v", err)
		}
		b.Idle(b.Recorders("kept")...)
	})
}

// A tenant that is dropped and created again has nothing of its former life.
func TestRetiredNamesGoWithTheirTenant(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Tenants(2)
		retire(b, "tenant0")
		b.Must(b.Store.DropTenant(b.Ctx, "tenant0"))
		tenant, err := b.Store.CreateTenant(b.Ctx, "tenant0")
		b.Must(err)
		b.AppendTo(tenant, "s", 2)
		b.Idle(b.Recorders("forgotten", "renamed", "replaced")...)
	})
}
