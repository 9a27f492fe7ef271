package tests_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// gently is a handler that records what it applies, under the names of the projection and its tenant.
func gently(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
	id, _ := millrace.ProjectionFrom(ctx)
	return tx.Record(ctx, id.Name+" of "+id.Tenant, events...)
}

// mustKeepGoing appends to the tenants, waits after each append until q has handled it, and checks what q did.
func mustKeepGoing(b *kit.Bundle, rt *millrace.Runtime, tenants ...kit.Tenant) (appends int) {
	b.T.Helper()
	const rounds = 5
	for i := range rounds {
		for _, tenant := range tenants {
			b.ReachesOf(rt, tenant.Name(), "q", b.AppendTo(tenant, fmt.Sprint("q", i%3), 5))
		}
	}
	for _, tenant := range tenants {
		b.Must(b.CheckOf(tenant, "q of "+tenant.Name()))
	}
	return rounds * len(tenants)
}

// misdeed is how a projection misbehaves.
type misdeed struct {
	projection millrace.Projection
	many       int
	do         func(ctx context.Context, tx kit.Tx, released <-chan struct{}) error
	// The handlers must be called that often before the other projections are checked, and after that.
	calls, more int64
	// long means that a call takes long. If other projections waited for it, only few appends would be handled per
	// call.
	long bool
	// needs is what the store needs, so that the misdeed can disturb no other.
	needs kit.Need
}

// hang hangs until it is released, whatever its context says.
func hang(_ context.Context, _ kit.Tx, released <-chan struct{}) error {
	<-released
	return nil
}

func takes(d time.Duration) func(context.Context, kit.Tx, <-chan struct{}) error {
	return func(_ context.Context, _ kit.Tx, released <-chan struct{}) error {
		select {
		case <-time.After(d):
		case <-released:
		}
		return nil
	}
}

func misdeeds(kind *kit.Kind) map[string]misdeed {
	always := func(do func(ctx context.Context, tx kit.Tx) error) func(context.Context, kit.Tx, <-chan struct{}) error {
		return func(ctx context.Context, tx kit.Tx, _ <-chan struct{}) error { return do(ctx, tx) }
	}
	faults := kind.AllFaults()
	// parks means that a failing event is parked after its first retry.
	parks := func(timeout time.Duration) millrace.Projection {
		return millrace.Projection{
			Timeout: timeout, Retry: kit.Soon(1), OnFailure: projection.ActionPark, MaxFailureShare: projection.NoLimit,
		}
	}
	many := 200
	if !kind.Meets(kit.ConcurrentWrites) { // each of them waits for all others
		many = 50
	}
	all := map[string]misdeed{
		"hangs for longer than the test": {
			calls: 1, long: true, do: hang, projection: millrace.Projection{Timeout: time.Hour},
			needs: kit.ConcurrentWrites,
		},
		"hangs again and again": {
			calls: 2, more: 1, long: kind.Meets(kit.ConcurrentWrites), do: hang,
			projection: parks(50 * time.Millisecond),
		},
		"hangs until its timeout": {
			calls: 2, more: 1, long: true, do: always(faults["timeout"].Fail), projection: parks(time.Second),
			needs: kit.ConcurrentWrites,
		},
		"hangs until a short timeout": {
			calls: 2, more: 1, do: always(faults["timeout"].Fail), projection: parks(50 * time.Millisecond),
		},
		"panics": {calls: 3, more: 10, do: always(faults["panic"].Fail), projection: parks(0)},
		"fails and is parked": {
			calls: 3, more: 10, do: always(faults["Go error"].Fail), projection: parks(0),
		},
		"fails and is retried": {
			calls: 3, more: 10, do: always(faults["SQL error"].Fail),
			projection: millrace.Projection{Retry: kit.Soon(1 << 20)},
		},
		"fills the disk": {calls: 3, more: 1, do: always(kind.Outages["disk full"])},
		"is slow": {
			calls: 2, more: 1, long: true, do: takes(time.Second), projection: millrace.Projection{MaxEvents: 1},
			needs: kit.ConcurrentWrites,
		},
		"is many": {
			calls: 2, more: 200, many: many, do: takes(0), projection: millrace.Projection{MaxEvents: 1},
		},
		"is many and fails": {
			calls: 2, more: 200, many: many, do: always(faults["SQL error"].Fail), projection: parks(0),
		},
		"is many and slow": {
			calls: 2, more: 60, many: 60, do: takes(50 * time.Millisecond),
			projection: millrace.Projection{MaxEvents: 1}, needs: kit.ConcurrentWrites,
		},
	}
	if connection, ok := kind.Outages["connection"]; ok {
		all["loses its connection"] = misdeed{calls: 3, more: 1, do: always(connection)}
	}
	return all
}

// misbehaving makes the projections of a misdeed for one tenant, and counts their calls.
func (m misdeed) misbehaving(b *kit.Bundle, tenant kit.Tenant,
	released <-chan struct{}) (list []millrace.Projection, calls *atomic.Int64) {
	calls = new(atomic.Int64)
	for i := range max(1, m.many) {
		p := m.projection
		p.Name = fmt.Sprint("p", i)
		p.Handler = b.Store.Batch(func(ctx context.Context, tx kit.Tx, _ []event.Envelope) error {
			if id, _ := millrace.ProjectionFrom(ctx); id.Tenant != tenant.Name() {
				return nil
			}
			calls.Add(1)
			return m.do(ctx, tx, released)
		})
		list = append(list, p)
	}
	return list, calls
}

func TestProjectionThatMisbehavesDisturbsNoOther(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for name, m := range misdeeds(kind) {
			t.Run(name, func(t *testing.T) {
				kind.MustMeet(t, m.needs)
				if m.many == 0 { // many are work for the machine
					t.Parallel()
				}
				b := kind.With(t, 8)
				tenants := b.Tenants(2)
				b.Append("a", 400)
				released := make(chan struct{})
				list, calls := m.misbehaving(b, b.Store, released)
				rt := b.Running(millrace.Config{GracePeriod: time.Second},
					append(list, millrace.Projection{Name: "q", Handler: b.Store.Batch(gently)})...)
				defer close(released)
				b.Eventually("it misbehaves", func() bool { return calls.Load() >= m.calls })
				before, started := calls.Load(), time.Now()
				appends := mustKeepGoing(b, rt, tenants...)
				meanwhile := calls.Load() - before
				t.Logf("%d calls in the %v that the others took", meanwhile,
					time.Since(started).Round(time.Millisecond))
				if m.long && meanwhile > int64(appends/2) {
					t.Errorf("%d calls, which take long, went by with %d appends", meanwhile, appends)
				}
				b.Eventually("it still misbehaves", func() bool { return calls.Load() >= before+m.more })
				if p := b.Status(rt, "p0"); p.Checkpoint >= p.Head {
					t.Errorf("it is at %d of %d, so that it disturbed nothing", p.Checkpoint, p.Head)
				}
			})
		}
	})
}

func TestTenantWhoseProjectionsHangDisturbsNoOther(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		const batches = 6
		for name, limit := range map[string]int{"limited": 0, "not limited": batches} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := kind.With(t, 8)
				tenants := b.Tenants(2)
				other, hanging := tenants[0], tenants[1]
				released := make(chan struct{})
				release := sync.OnceFunc(func() { close(released) })
				m := misdeed{many: 2 * batches, do: hang, projection: millrace.Projection{Timeout: time.Hour}}
				list, calls := m.misbehaving(b, hanging, released)
				rt := b.Running(millrace.Config{MaxBatches: batches, MaxBatchesPerTenant: limit},
					append(list, millrace.Projection{Name: "q", Handler: b.Store.Batch(gently)})...)
				defer release()
				b.AllLive(rt, 2*(2*batches+1))
				// One event is enough for them to take all batches that they may have.
				last := b.AppendTo(hanging, "a", 5)
				b.Eventually("its projections hang",
					func() bool { return calls.Load() >= int64(cmp.Or(limit, batches/2)) })
				if limit == 0 {
					mustKeepGoing(b, rt, other)
				} else {
					// The control: without the limit the others wait.
					ctx, cancel := context.WithTimeout(b.Ctx, time.Second)
					defer cancel()
					if err := rt.WaitFor(ctx, millrace.ProjectionID{Name: "q"},
						b.AppendTo(other, "q", 5)); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("without a limit for each tenant the others do not wait: %v", err)
					}
				}
				release()
				b.ReachesOf(rt, hanging.Name(), "q", last)
				mustKeepGoing(b, rt, tenants...)
			})
		}
	}, kit.ConcurrentWrites)
}

func TestLongWaitForASlotShutsNothingDown(t *testing.T) {
	t.Run("batches", func(t *testing.T) {
		kit.Run(t, func(t *testing.T, b *kit.Bundle) {
			longWait(b, millrace.Config{MaxBatches: 1}, func(name string, wait func()) millrace.Handler {
				return b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
					wait()
					return tx.Record(ctx, name, events...)
				})
			})
			for _, name := range []string{"slow", "p"} {
				b.Verify(name)
			}
		}, kit.ConcurrentWrites)
	})
	t.Run("deliveries", func(t *testing.T) {
		kit.Run(t, func(t *testing.T, b *kit.Bundle) {
			longWait(b, millrace.Config{MaxDeliveries: 1}, func(_ string, wait func()) millrace.Handler {
				return millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
					wait()
					return nil
				})
			})
		})
	})
}

// longWait runs the projections slow and p, which share one slot. While slow has the slot, p waits for several times as
// long as its handler and its calls may take. handler makes a handler that calls wait.
func longWait(b *kit.Bundle, config millrace.Config, handler func(name string, wait func()) millrace.Handler) {
	b.T.Helper()
	log, logs := kit.Logs()
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	config = kit.Tuned(config, func(s *tuning.Settings) { s.Query = time.Second })
	config.Logger = log
	rt := b.Running(config,
		millrace.Projection{Name: "slow", Timeout: time.Minute, Handler: handler("slow", func() {
			entered <- struct{}{}
			<-leave
		})},
		millrace.Projection{Name: "p", Timeout: time.Second, Retry: kit.Soon(1), Handler: handler("p", func() {})})
	b.Append("a", 1)
	b.InTime("the slow handler is called", func() { <-entered })
	last := b.Append("a", 3).Positions[2]
	<-time.After(8 * time.Second) // a handler and its calls may take 6 s
	var status admin.Status
	b.Eventually("the status is read in time", func() (read bool) {
		var err error
		status, err = rt.Status(b.Ctx, admin.StatusFilter{Names: []string{"p"}})
		return err == nil
	})
	if p := status.Projection(millrace.ProjectionID{Name: "p"}); p.State == admin.StateWaiting ||
		p.State == admin.StateFailed {
		b.T.Errorf("while another has the slot it is %s: %s", p.State, p.Reason)
	}
	close(leave)
	b.Reaches(rt, "slow", last)
	b.Reaches(rt, "p", last)
	for _, message := range []string{"database unusable", "fault not counted", "stuck"} {
		for _, entry := range logs.FilterMessageSnippet(message).All() {
			b.T.Errorf("%s: %v", entry.Message, entry.ContextMap())
		}
	}
}

// heap returns the bytes of the live objects.
func heap() int64 {
	var stats runtime.MemStats
	for range 2 { // the second collection frees what finalizers held
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestTrickleToManyTenantsPinsLittleMemory appends small events one by one, so that each is a read of its own.
func TestTrickleToManyTenantsPinsLittleMemory(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		const (
			tenants, rounds, writers = 150, 3, 8
			// An event of 200 bytes is some 500 bytes in memory, and timers and buffers of the trickle are counted with
			// it.
			most = 8 << 10
		)
		b := kind.With(t, 8).Patient()
		all := b.Tenants(tenants)
		rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p", Handler: b.Store.Batch(kit.Nothing)})
		body := append(append([]byte(`"`), bytes.Repeat([]byte("x"), 198)...), '"')
		round := func() {
			var group errgroup.Group
			group.SetLimit(writers)
			for _, tenant := range all {
				group.Go(func() error {
					result, err := tenant.Append(b.Ctx, "a", event.Any, event.Event{Type: "counted", Body: body})
					if err != nil {
						return err
					}
					return rt.WaitFor(b.Ctx, millrace.ProjectionID{Tenant: tenant.Name(), Name: "p"},
						result.Positions[0])
				})
			}
			b.Must(group.Wait())
		}
		round()
		before := heap()
		for range rounds {
			round()
		}
		each := (heap() - before) / tenants
		t.Logf("%d bytes more for each tenant after %d events", each, rounds)
		if each > most {
			t.Errorf("a trickle of %d events pins %d bytes for each tenant, at most %d are expected", rounds, each,
				most)
		}
	}, kit.Alone)
}
