package tests_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestStatsOfANode(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		tenants := b.Tenants(3)
		for _, tenant := range tenants {
			b.AppendTo(tenant, "a", 5)
		}
		appended := time.Now()
		parks := kit.FailsAt("parks", kit.Only(2), kit.Fails)
		rt := b.Runtime(millrace.Config{},
			millrace.Projection{
				Name: "parks", OnFailure: projection.ActionPark, Handler: b.Store.Batch(parks), Retry: kit.Soon(0),
				MaxFailureShare: projection.NoLimit,
			},
			millrace.Projection{Name: "retries", MaxEvents: 1,
				Retry:   projection.RetryPolicy{MaxAttempts: 2, Base: time.Hour, Cap: time.Hour},
				Handler: b.Store.Batch(kit.FailsAt("retries", kit.Only(3), kit.Fails))},
			millrace.Projection{Name: "guarded", Breaker: projection.BreakerPolicy{IsOutage: isDown,
				Failures: 1, OpenFor: time.Hour},
				Handler: b.Store.Batch(kit.FailsAt("guarded", kit.Any,
					func(context.Context, kit.Tx, int, int64) error { return errDown }))})
		if s := rt.Stats(); s.Node != "" || s.Projections != nil {
			t.Errorf("before it runs: %+v", s)
		}
		stop := b.Start(rt)
		stats := make(map[string]millrace.ProjectionStats)
		b.Eventually("all have come as far as they can", func() bool {
			for _, p := range rt.Stats().Projections {
				stats[p.Name] = p
			}
			return stats["parks"].Parked == 3 && stats["parks"].Behind == 0 &&
				stats["parks"].States[admin.StateLive] == 3 &&
				stats["retries"].States[admin.StateWaiting] == 3 &&
				stats["guarded"].Breakers[projection.BreakerOpen] == 3
		})
		if p := stats["parks"]; p.Lag != 0 || p.MostBehind != 0 || p.Tenant != "" {
			t.Errorf("at the end of the events: %+v", p)
		}
		since := time.Since(appended)
		for name, behind := range map[string]int64{"retries": 3, "guarded": 5} {
			if p := stats[name]; p.Behind != 3*behind || p.MostBehind != behind || p.Lag <= 0 ||
				p.Lag > since+time.Minute {
				t.Errorf("%s, %v after the appends: %+v", name, since, p)
			}
		}
		byTenant := rt.StatsByTenant()
		if byTenant.Node != b.Summary(rt).Node || !byTenant.Connected || byTenant.HeldTenants != 0 ||
			len(byTenant.Projections) != 9 {
			t.Errorf("by tenant: %+v", byTenant)
		}
		for _, p := range byTenant.Projections {
			if p.Name == "retries" && (p.Behind != 3 || p.States[admin.StateWaiting] != 1) || p.Tenant == "" {
				t.Errorf("of one tenant: %+v", p)
			}
		}
		stop()
		if s := rt.Stats(); s.Node != "" || s.Projections != nil {
			t.Errorf("after it has ended: %+v", s)
		}
	})
}
