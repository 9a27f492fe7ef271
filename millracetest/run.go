package millracetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
)

// patience is for what takes milliseconds on a machine that is not overloaded.
const patience = 30 * time.Second

// When runs projections for all tenants that they select, until they have handled, parked or skipped all events. These
// include the events that handlers append meanwhile. It returns the status after the last run. It may be called again
// after further events. The delays of Projection.Retry are shortened, and a missing table fails at once.
func (k *Kit) When(projections ...millrace.Projection) admin.Status {
	k.t.Helper()
	return k.run(func() []millrace.Projection { return projections })
}

// WhenFails is When for a projection that is expected to fail, for instance because its OnFailure is
// projection.ActionStop. It returns the error, which wraps projection.ErrFailed and has the reason. It fails the test
// if no projection has failed. Afterwards it resumes the projections that have failed, as an operator does after a
// repair, so the next When tries their events again.
func (k *Kit) WhenFails(projections ...millrace.Projection) error {
	k.t.Helper()
	status, err := k.tryRun(func() []millrace.Projection { return projections })
	switch {
	case err == nil:
		k.t.Fatalf("no projection has failed%s", k.parkedNote())
	case !errors.Is(err, projection.ErrFailed):
		k.t.Fatalf("%v%s", err, reasons(status))
	}
	ctx, cancel := k.context()
	defer cancel()
	a, notAdmin := admin.New(k.store)
	k.must(notAdmin)
	for _, p := range status.Projections {
		if p.State == admin.StateFailed {
			k.must(a.Resume(ctx, p.ID))
		}
	}
	return err
}

// run runs projections, which make makes anew for each runtime.
func (b *bench) run(make func() []millrace.Projection) admin.Status {
	b.t.Helper()
	status, err := b.tryRun(make)
	if err != nil {
		b.t.Fatalf("%v%s", err, reasons(status))
	}
	return status
}

// tryRun is run. It returns the error of the runtime.
func (b *bench) tryRun(make func() []millrace.Projection) (status admin.Status, err error) {
	b.t.Helper()
	ctx, cancel := b.context()
	defer cancel()
	heads := b.heads(ctx)
	for round := 0; round < b.rounds; {
		projections := make()
		rt := b.runtime(projections)
		var again bool
		status, again, err = b.untilIdle(ctx, rt)
		if again {
			continue
		}
		b.readParked(projections, status)
		before := heads
		heads = b.heads(ctx)
		if err != nil || maps.Equal(heads, before) {
			return status, err
		}
		round++
	}
	return status, fmt.Errorf("after %d runs of the projections there are still new events", b.rounds)
}

// heads returns the highest position of each tenant.
func (b *bench) heads(ctx context.Context) map[string]int64 {
	b.t.Helper()
	tenants, err := b.store.Tenants(ctx)
	b.must(err)
	a, err := admin.New(b.store)
	b.must(err)
	status, err := a.Status(ctx, admin.StatusFilter{Tenants: tenants, Limit: 1})
	b.must(err)
	heads := make(map[string]int64)
	for _, tenant := range status.Tenants {
		heads[tenant.Tenant] = tenant.Head
	}
	return heads
}

// runtime returns a runtime of projections, which wait neither between retries nor for missing objects.
func (b *bench) runtime(projections []millrace.Projection) *millrace.Runtime {
	b.t.Helper()
	config := b.config
	config.GracePeriod = cmp.Or(config.GracePeriod, time.Millisecond)
	// A slow machine must not lose leases by itself.
	config.LeaseDuration = cmp.Or(config.LeaseDuration, patience)
	config.Store = tuning.Settings{Store: b.store, Query: patience}
	rt, err := millrace.New(config)
	b.must(err)
	b.must(rt.Register(hasty(projections)...))
	return rt
}

// untilIdle runs a runtime. again reports whether a fault has interrupted it.
func (b *bench) untilIdle(ctx context.Context, rt *millrace.Runtime) (status admin.Status, again bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.mu.Lock()
	b.interrupt, b.interrupted = cancel, false
	b.mu.Unlock()
	status, err = rt.RunUntilIdle(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.interrupt = nil
	return status, b.interrupted && errors.Is(err, context.Canceled), err
}

// hasty returns projections that wait neither between retries nor for missing objects.
func hasty(projections []millrace.Projection) []millrace.Projection {
	projections = slices.Clone(projections)
	for i := range projections {
		p := &projections[i]
		p.Retry.Base, p.Retry.Cap = time.Millisecond, time.Millisecond
		if p.MissingObjectTimeout == 0 {
			p.MissingObjectTimeout = projection.None
		}
	}
	return projections
}

// reasons says what the projections wait for.
func reasons(status admin.Status) string {
	var text strings.Builder
	for _, p := range status.Projections {
		if p.Reason != "" {
			fmt.Fprintf(&text, "\n%s is %s: %s", p.ID, p.State, p.Reason)
		}
	}
	return text.String()
}
