package service

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/projection"
)

var (
	// Kept are the projections that every release runs.
	Kept = []string{"totals", "shares", "mails"}
	// Retired are names that Fill has retired: early became late, and gone was forgotten.
	Retired = []string{"early", "gone"}
	// Tenants are the tenants that Fill leaves active. It also archives the tenant "closed".
	Tenants = []string{projection.DefaultTenant, "acme", "globex"}
	// FirstKey is the idempotency key of the first event of each tenant.
	FirstKey = event.Any.WithKey("first")
)

// appended is how many events Fill appends to a tenant at a time.
const appended = 40

// Fill creates a store and leaves it in the middle of its work: with events that no projection has handled, parked
// streams, a paused projection (totals of acme), and names that are retired.
func Fill(ctx context.Context, store Store) error {
	const closed = "closed"
	tenants := slices.Concat(Tenants, []string{closed})
	if err := store.CreateTenants(ctx, tenants[1:]...); err != nil {
		return err
	}
	if err := appendTo(ctx, store, tenants, 0); err != nil {
		return err
	}
	rt, err := Node{Name: "fill", Projections: slices.Concat(Kept, Retired)}.Runtime(store)
	if err != nil {
		return err
	}
	if _, err := rt.RunUntilIdle(ctx); err != nil {
		return err
	}
	for _, tenant := range tenants {
		if err := rt.Rename(ctx, projection.ID{Tenant: tenant, Name: "early"}, "late"); err != nil {
			return err
		}
		if err := rt.Forget(ctx, projection.ID{Tenant: tenant, Name: "gone"}); err != nil {
			return err
		}
	}
	if err := rt.Pause(ctx, projection.ID{Tenant: "acme", Name: "totals"}); err != nil {
		return err
	}
	if err := store.ArchiveTenant(ctx, closed); err != nil {
		return err
	}
	return appendTo(ctx, store, Tenants, appended)
}

// appendTo appends events to tenants, from the one with the number from on.
func appendTo(ctx context.Context, store Store, tenants []string, from int) error {
	for _, name := range tenants {
		tenant, err := store.Tenant(name)
		if err != nil {
			return err
		}
		for i := from; i < from+appended; i++ {
			expected := event.Any
			if i == 0 {
				expected = FirstKey
			}
			if _, err := appendOne(ctx, tenant, i, expected); err != nil {
				return fmt.Errorf("append to tenant %s: %w", name, err)
			}
		}
	}
	return nil
}

// appendOne appends the i-th event of a writer. Every hundredth is bad.
func appendOne(ctx context.Context, tenant Tenant, i int, expected event.Expected) (event.Appended, error) {
	e := event.Untyped("Counted", map[string]int{"n": i})
	if i%100 == 5 {
		e.Type = bad
	}
	e.Headers, e.CausationID, e.CorrelationID = map[string]string{"user": "ann"}, "cause", "talk"
	return tenant.Append(ctx, fmt.Sprintf("stream-%d", i%10), expected, e)
}

// Finish runs projections in all active tenants until they have handled every event, and replays what is parked. It
// also registers the names that Fill has retired.
func Finish(ctx context.Context, store Store, names ...string) (err error) {
	rt, err := Node{Name: "finish", Projections: slices.Concat(names, Retired), Mended: true}.Runtime(store)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(running) }()
	defer func() {
		stop()
		if e := <-ended; err == nil {
			err = e
		}
	}()
	tenants, err := store.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		if err := finishTenant(ctx, store, rt, tenant, names); err != nil {
			return fmt.Errorf("tenant %s: %w", tenant, err)
		}
	}
	return nil
}

func finishTenant(ctx context.Context, store Store, rt *millrace.Runtime, tenant string, names []string) error {
	content, err := contentOf(ctx, store, tenant)
	if err != nil || content.State != tenantActive || len(content.Events) == 0 {
		return err
	}
	for _, name := range names {
		id := projection.ID{Tenant: tenant, Name: name}
		if err := rt.WaitFor(ctx, id, content.Events[len(content.Events)-1].Position); err != nil {
			return err
		}
		if _, err := store.DeadLetters(id).Replay(ctx, projection.DeadLetterFilter{All: true}, all); err != nil {
			return fmt.Errorf("replay %s: %w", id, err)
		}
	}
	return nil
}
