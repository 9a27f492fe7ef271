package storecopy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
)

// TestRunningNodesWaitForTheEndOfACopy copies a tenant into a database on which a node runs. The node runs other tenants
// meanwhile, and the copied tenant at once after the copy, from its checkpoint.
func TestRunningNodesWaitForTheEndOfACopy(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, target := newSource(t), newTarget(t)
	acme := must(source.CreateTenant(ctx, "acme"))(t)
	must(acme.Append(ctx, "s", event.NoStream, happened, happened, happened, happened, happened))(t)
	sqlite(t, source, `insert into millrace_projections (tenant, name, token) select id, 'plain', '6f1d2c3b-0000-4000-8000-000000000001' from millrace_tenants where name = 'acme'`)
	sqlite(t, source, `insert into millrace_leases (id, epoch, checkpoint, free_since) values (1, 4, 2, 0)`)
	other := must(target.CreateTenant(ctx, "other"))(t)

	var mu sync.Mutex
	handled := make(map[string][]int64)
	rt := must(millrace.New(millrace.Config{Store: target}))(t)
	noError(t, rt.Register(millrace.Projection{Name: "plain", Tenants: []string{"acme", "other"}, Handler: pgstore.Each(func(ctx context.Context, _ pgx.Tx, e event.Envelope) error {
		id, _ := millrace.ProjectionFrom(ctx)
		mu.Lock()
		defer mu.Unlock()
		handled[id.Tenant] = append(handled[id.Tenant], e.Position)
		return nil
	})}))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(running) }()
	defer func() {
		stop()
		noError(t, <-ended)
	}()
	runs := func(tenant string, position int64) {
		t.Helper()
		noError(t, rt.WaitFor(ctx, millrace.ProjectionID{Tenant: tenant, Name: "plain"}, position))
	}
	runs("other", must(other.Append(ctx, "s", event.NoStream, happened))(t).Positions[0])
	during := func() {
		// The node has followed all notifications that came before this one.
		second := must(target.CreateTenant(ctx, "second"))(t)
		must(second.Append(ctx, "s", event.NoStream, happened))(t)
		runs("other", must(other.Append(ctx, "s", event.Any, happened))(t).Positions[0])
		if owned := collectPG(t, target, `select p.tenant from millrace.projections p join millrace.leases l using (id) where l.owner is not null and l.epoch <> 4 or p.tenant = 'acme' and (not suspended or not asleep)`); !slices.Equal(owned, []string{"other"}) {
			t.Errorf("during the copy the node owns %q", owned)
		}
	}
	_, err := run(ctx, source.CopySource(), faultyTarget{Target: target.CopyTarget(nil, nil), faults: never(), damage: during}, keepAll())
	noError(t, err)
	runs("acme", 5)
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(handled["acme"], []int64{3, 4, 5}) || !slices.Equal(handled["other"], []int64{1, 2}) {
		t.Errorf("handled %v", handled)
	}
}

// TestCopyContinuesAfterACrashOfTheServer loses commits that were not synchronous.
func TestCopyContinuesAfterACrashOfTheServer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := pgtest.Private(t, pgtest.Options{Settings: pgtest.AsyncCommits(nil)})
	source, want := small(t)
	target := openTarget(t, server.DSN("postgres"))
	noError(t, target.Migrate(ctx))
	written := func() []string {
		t.Helper()
		return collectPG(t, target, `select tenant || part || rows from millrace.copied_parts order by 1`)
	}
	lost := 0
	for _, f := range []*faults{{since: "write events", at: 5}, {since: "verify", at: 0}} {
		opts := keepAll()
		opts.Progress = func(p Progress) {
			if p.Table != "" && len(f.calls) == 7 {
				noError(t, server.HoldWAL(ctx))
			}
		}
		if err := runFaulty(ctx, source, target, opts, f); !errors.Is(err, errInterrupted) {
			t.Fatal(err)
		}
		before := written()
		noError(t, server.CrashBackend(ctx))
		target = openTarget(t, server.DSN("postgres"))
		if !slices.Equal(before, written()) {
			lost++
		}
	}
	if lost == 0 {
		t.Error("the crashes lost nothing")
	}
	noError(t, runFaulty(ctx, source, target, keepAll(), never()))
	mustHave(t, target, want)
}
