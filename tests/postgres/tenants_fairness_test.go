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
	b.T.Helper()
	var took []time.Duration
	for range 21 {
		began := time.Now()
		b.Must(rt.WaitFor(b.Ctx, millrace.ProjectionID{Name: "p"}, b.Append("a", 1).Positions[0]))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func TestAppendsThatStayOpenDoNotSlowOtherTenants(t *testing.T) {
	const tenants, most = 30, 20
	b := setup(t, pgstore.Options{})
	rt := b.Runtime(millrace.Config{}, b.Recorders("p")...)
	names := make([]string, tenants)
	for i := range names {
		names[i] = fmt.Sprintf("t%d", i)
		if _, err := b.store.CreateTenant(b.Ctx, names[i]); err != nil {
			t.Fatal(err)
		}
	}
	b.Start(rt)
	b.Eventually("all projections are started", func() bool {
		status, err := rt.Status(b.Ctx)
		return err == nil && len(status.Projections) == tenants+1 &&
			!slices.ContainsFunc(status.Projections, func(p millrace.ProjectionStatus) bool { return p.State != millrace.StateLive })
	})
	without := b.latency(rt)

	// One transaction holds all of them open; behind it each has an event that cannot be settled.
	conn, err := pgx.Connect(b.Ctx, b.dsn)
	b.Must(err)
	defer func() { _ = conn.Close(b.Ctx) }()
	if _, err := conn.Exec(b.Ctx, "begin"); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		tenant, err := b.store.ForTenant(name)
		b.Must(err)
		_, err = conn.Exec(b.Ctx, "insert into millrace_"+name+".events (stream_id, stream_version, type, body) values ('x', 1, 'x', '1')")
		b.Must(err)
		if _, err := tenant.Append(b.Ctx, "a", event.Any, event.Event{Type: "counted"}); err != nil {
			t.Fatal(err)
		}
	}
	b.Eventually("all are held back", func() bool {
		status, err := rt.Status(b.Ctx)
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
