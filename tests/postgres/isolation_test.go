package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// soonEnough is beyond what a projection takes that nobody holds up, however slow the machine is.
const soonEnough = 30 * time.Second

// gently is a handler of all tenants that records what it applies under the names of the projection and its tenant.
func gently(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
	id, _ := millrace.ProjectionFrom(ctx)
	return recordIn(ctx, tx, id.Name+" of "+id.Tenant, events)
}

// appendFor appends some events of a tenant, and returns the position of the last.
func (b *bundle) appendFor(tenant *pgstore.Tenant, stream string) int64 {
	b.t.Helper()
	result, err := tenant.Append(b.ctx, stream, event.Any, slices.Repeat([]event.Event{{Type: "counted"}}, 5)...)
	if err != nil {
		b.t.Fatal(err)
	}
	return result.Positions[4]
}

func (b *bundle) qReaches(rt *millrace.Runtime, tenant *pgstore.Tenant, position int64, within time.Duration) error {
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	return rt.WaitFor(ctx, millrace.ProjectionID{Tenant: tenant.Name(), Name: "q"}, position)
}

// mustKeepGoing appends to the tenants, waits after each append until q has handled it, and checks what q did.
func (b *bundle) mustKeepGoing(rt *millrace.Runtime, tenants ...*pgstore.Tenant) (appends int) {
	b.t.Helper()
	const rounds = 5
	for i := range rounds {
		for _, tenant := range tenants {
			if err := b.qReaches(rt, tenant, b.appendFor(tenant, fmt.Sprint("q", i%3)), soonEnough); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	for _, tenant := range tenants {
		b.mustHaveAppliedOnce(tenant)
	}
	return rounds * len(tenants)
}

// mustHaveAppliedOnce checks that q applied each of the tenant's events once and in order.
func (b *bundle) mustHaveAppliedOnce(tenant *pgstore.Tenant) {
	b.t.Helper()
	if tenant.Name() == projection.DefaultTenant {
		b.verify("q of default")
	}
	var want, applied []int64
	for e, err := range tenant.ReadAll(b.ctx, pgstore.ReadOptions{}) {
		if err != nil {
			b.t.Fatal(err)
		}
		want = append(want, e.Position)
	}
	err := b.store.Pool().QueryRow(b.ctx, "select array_agg(position order by at) from applied where projection = $1", "q of "+tenant.Name()).Scan(&applied)
	if err != nil || !slices.Equal(applied, want) {
		b.t.Errorf("%s: applied %v, not %v: %v", tenant.Name(), applied, want, err)
	}
}

// misdeed is how a projection misbehaves.
type misdeed struct {
	projection millrace.Projection
	many       int
	do         func(released <-chan struct{}) func(ctx context.Context, tx pgx.Tx) error
	// calls is how often the handlers must have been called before the others are looked at, more how often after that.
	calls, more int64
	// long tells that a call takes long: who waits for one with each append lets many of them go by.
	long bool
}

func always(do func(ctx context.Context, tx pgx.Tx) error) func(<-chan struct{}) func(context.Context, pgx.Tx) error {
	return func(<-chan struct{}) func(context.Context, pgx.Tx) error { return do }
}

// hang hangs until it is released, whatever its context says.
func hang(released <-chan struct{}) func(context.Context, pgx.Tx) error {
	return func(context.Context, pgx.Tx) error {
		<-released
		return nil
	}
}

func takes(d time.Duration) func(<-chan struct{}) func(context.Context, pgx.Tx) error {
	return func(released <-chan struct{}) func(context.Context, pgx.Tx) error {
		return func(context.Context, pgx.Tx) error {
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-released:
			}
			return nil
		}
	}
}

var misdeeds = map[string]misdeed{
	"hangs for longer than the test": {calls: 1, long: true, do: hang, projection: millrace.Projection{Timeout: time.Hour}},
	"hangs again and again": {calls: 2, more: 1, long: true, do: hang,
		projection: millrace.Projection{Timeout: 50 * time.Millisecond, Retry: impatient, MaxFailureShare: -1}},
	"hangs until its deadline": {calls: 2, more: 1, long: true, do: always(func(ctx context.Context, _ pgx.Tx) error {
		<-ctx.Done()
		return ctx.Err()
	}), projection: millrace.Projection{Timeout: time.Second, Retry: impatient, MaxFailureShare: -1}},
	"panics": {calls: 3, more: 10, do: always(func(context.Context, pgx.Tx) error { panic("on purpose") }),
		projection: millrace.Projection{Retry: impatient, MaxFailureShare: -1}},
	"fails and is parked": {calls: 3, more: 10, do: always(func(context.Context, pgx.Tx) error { return errors.New("on purpose") }),
		projection: millrace.Projection{Retry: impatient, MaxFailureShare: -1}},
	"fails and is retried": {calls: 3, more: 10, do: always(execute("select 1/0")),
		projection: millrace.Projection{Retry: soon(1 << 20)}},
	"loses its connection": {calls: 3, more: 1, do: always(execute("select pg_terminate_backend(pg_backend_pid()); select 1"))},
	"is slow":              {calls: 2, more: 1, long: true, do: takes(time.Second), projection: millrace.Projection{MaxEvents: 1}},
	"is many":              {calls: 2, more: 200, many: 200, do: takes(0), projection: millrace.Projection{MaxEvents: 1}},
	"is many and fails":    {calls: 2, more: 200, many: 200, do: always(execute("select 1/0")), projection: millrace.Projection{Retry: impatient, MaxFailureShare: -1}},
	"is many and slow":     {calls: 2, more: 60, many: 60, do: takes(50 * time.Millisecond), projection: millrace.Projection{MaxEvents: 1}},
}

// misbehaving makes the projections of a misdeed, which they commit for one tenant, and counts their calls.
func (m misdeed) misbehaving(tenant *pgstore.Tenant, released <-chan struct{}) (list []millrace.Projection, calls *atomic.Int64) {
	calls = new(atomic.Int64)
	do := m.do(released)
	for i := range max(1, m.many) {
		p := m.projection
		p.Name = fmt.Sprint("p", i)
		p.Handler = pgstore.Batch(func(ctx context.Context, tx pgx.Tx, _ []event.Envelope) error {
			if id, _ := millrace.ProjectionFrom(ctx); id.Tenant != tenant.Name() {
				return nil
			}
			calls.Add(1)
			return do(ctx, tx)
		})
		list = append(list, p)
	}
	return list, calls
}

func TestProjectionThatMisbehavesDisturbsNoOther(t *testing.T) {
	for name, m := range misdeeds {
		t.Run(name, func(t *testing.T) {
			if m.many == 0 { // many are work for the machine
				t.Parallel()
			}
			b := setup(t, pgstore.Options{}, "pool_max_conns", "8")
			tenants := b.tenants(2)
			b.append("a", 400)
			released := make(chan struct{})
			list, calls := m.misbehaving(b.defaultTenant(), released)
			rt := b.runtime(millrace.Config{GracePeriod: time.Second}, append(list, millrace.Projection{Name: "q", Handler: pgstore.Batch(gently)})...)
			b.start(rt)
			defer close(released)
			b.eventually("it misbehaves", func() bool { return calls.Load() >= m.calls })
			before, started := calls.Load(), time.Now()
			appends := b.mustKeepGoing(rt, tenants...)
			meanwhile := calls.Load() - before
			t.Logf("%d calls in the %v that the others took", meanwhile, time.Since(started).Round(time.Millisecond))
			if m.long && meanwhile > int64(appends/2) {
				t.Errorf("%d calls, which take long, went by with %d appends", meanwhile, appends)
			}
			b.eventually("it still misbehaves", func() bool { return calls.Load() >= before+m.more })
			var checkpoint, head int64
			err := b.store.Pool().QueryRow(b.ctx, `select checkpoint, (select max(global_seq) from millrace_default.events)
				from millrace.leases join millrace.projections using (id) where tenant = 'default' and name = 'p0'`).Scan(&checkpoint, &head)
			if err != nil || checkpoint >= head {
				t.Errorf("it is at %d of %d, so that nobody was disturbed: %v", checkpoint, head, err)
			}
		})
	}
}

func TestTenantWhoseProjectionsHangDisturbsNoOther(t *testing.T) {
	t.Parallel()
	const batches = 6
	for name, limit := range map[string]int{"limited": 0, "not limited": batches} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, pgstore.Options{}, "pool_max_conns", "8")
			tenants := b.tenants(2)
			other, hanging := tenants[0], tenants[1]
			released := make(chan struct{})
			release := sync.OnceFunc(func() { close(released) })
			m := misdeed{many: 2 * batches, do: hang, projection: millrace.Projection{Timeout: time.Hour}}
			list, calls := m.misbehaving(hanging, released)
			rt := b.runtime(millrace.Config{MaxBatches: batches, MaxBatchesPerTenant: limit}, append(list, millrace.Projection{Name: "q", Handler: pgstore.Batch(gently)})...)
			b.start(rt)
			defer release()
			b.eventually("everything is served, and nothing was to be done yet", func() bool {
				status, err := rt.Status(b.ctx)
				return err == nil && len(status.Projections) > 0 && !slices.ContainsFunc(status.Projections, func(p millrace.ProjectionStatus) bool {
					return p.State != millrace.StateLive
				})
			})
			// One event is enough for them to take all that they get.
			last := b.appendFor(hanging, "a")
			b.eventually("its projections hang", func() bool { return calls.Load() >= int64(cmp.Or(limit, batches/2)) })
			if limit == 0 {
				b.mustKeepGoing(rt, other)
			} else if err := b.qReaches(rt, other, b.appendFor(other, "q"), time.Second); !errors.Is(err, context.DeadlineExceeded) {
				// The control: the limit is what the others owe it to.
				t.Errorf("without a limit for each tenant the others do not wait: %v", err)
			}
			release()
			if err := b.qReaches(rt, hanging, last, soonEnough); err != nil {
				t.Error(err)
			}
			b.mustKeepGoing(rt, tenants...)
		})
	}
}
