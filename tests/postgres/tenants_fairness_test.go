package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// latency is the median time from before an append to its projection.
func (b *bundle) latency(rt *millrace.Runtime) time.Duration {
	b.t.Helper()
	var took []time.Duration
	for range 21 {
		began := time.Now()
		if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: "p"}, b.append("a", 1).Positions[0]); err != nil {
			b.t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func TestAppendsThatStayOpenDoNotSlowOtherTenants(t *testing.T) {
	const tenants, most = 30, 20
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	names := make([]string, tenants)
	for i := range names {
		names[i] = fmt.Sprintf("t%d", i)
		if _, err := b.store.CreateTenant(b.ctx, names[i]); err != nil {
			t.Fatal(err)
		}
	}
	b.start(rt)
	b.eventually("all projections are started", func() bool {
		status, err := rt.Status(b.ctx)
		return err == nil && len(status.Projections) == tenants+1 &&
			!slices.ContainsFunc(status.Projections, func(p millrace.ProjectionStatus) bool { return p.State != millrace.StateLive })
	})
	without := b.latency(rt)

	// One transaction holds all of them open; behind it each has an event that cannot be settled.
	conn, err := pgx.Connect(b.ctx, b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(b.ctx) }()
	if _, err := conn.Exec(b.ctx, "begin"); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		tenant, err := b.store.ForTenant(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(b.ctx, "insert into millrace_"+name+".events (stream_id, stream_version, type, body) values ('x', 1, 'x', '1')")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tenant.Append(b.ctx, "a", event.Any, event.Event{Type: "counted"}); err != nil {
			t.Fatal(err)
		}
	}
	b.eventually("all are held back", func() bool {
		status, err := rt.Status(b.ctx)
		held := 0
		for _, tenant := range status.Tenants {
			if tenant.Held != nil {
				held++
			}
		}
		return err == nil && held == tenants
	})
	with := b.latency(rt)
	t.Logf("%v without appends that stay open, %v with %d of them", without, with, tenants)
	if with > most*without {
		t.Errorf("the latency grew from %v to %v", without, with)
	}
}
