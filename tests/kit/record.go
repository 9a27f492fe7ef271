package kit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/projection"
)

// ErrOnPurpose is how handlers of tests fail.
var ErrOnPurpose = errors.New("on purpose")

// Quick lets other nodes take over soon after a process is gone. The lease is so long that a busy machine sends
// heartbeats in time.
var Quick = millrace.Config{
	Store:         tuning.Settings{Heartbeat: 100 * time.Millisecond, Reconcile: 100 * time.Millisecond},
	LeaseDuration: 3 * time.Second,
}

// Soon returns a policy that retries a failed event that many times, almost at once. With Soon(0) the first counted
// failure parks the event.
func Soon(retries int) projection.RetryPolicy {
	return projection.RetryPolicy{MaxAttempts: retries + 1, Base: time.Millisecond, Cap: 20 * time.Millisecond}
}

// Record is a handler that records what it applies.
func Record(name string) BatchFunc {
	return func(ctx context.Context, tx Tx, events []event.Envelope) error {
		return tx.Record(ctx, name, events...)
	}
}

// Recorders are projections that record what they apply.
func (b *Bundle) Recorders(names ...string) (projections []millrace.Projection) {
	for _, name := range names {
		projections = append(projections, millrace.Projection{Name: name, Handler: b.Store.Batch(Record(name))})
	}
	return projections
}

// Erase is a hook that deletes what a projection recorded.
func Erase(name string) HookFunc {
	return func(ctx context.Context, tx Tx) error { return tx.Erase(ctx, name) }
}

// Rebuildable is a projection that records what it applies and can be rebuilt.
func (b *Bundle) Rebuildable(name string) millrace.Projection {
	return millrace.Projection{Name: name, Handler: b.Store.Batch(Record(name)), Reset: b.Store.Hook(Erase(name))}
}

// Nothing is a handler that does nothing.
func Nothing(context.Context, Tx, []event.Envelope) error { return nil }

// Freely is a function for DeliverEach that does nothing and succeeds.
func Freely(context.Context, millrace.Delivered) error { return nil }

// FailsAt records its events and then, if a poison event is among them, fails.
func FailsAt(name string, poison func(position int64) bool,
	fail func(ctx context.Context, tx Tx, batch int, position int64) error) BatchFunc {
	return func(ctx context.Context, tx Tx, events []event.Envelope) error {
		if err := tx.Record(ctx, name, events...); err != nil {
			return err
		}
		for _, e := range events {
			if poison(e.Position) {
				return fail(ctx, tx, len(events), e.Position)
			}
		}
		return nil
	}
}

// Fails is a fail function for FailsAt: it returns ErrOnPurpose.
func Fails(context.Context, Tx, int, int64) error { return ErrOnPurpose }

// OneByOne turns a function for batches into one for single events.
func OneByOne(h BatchFunc) EventFunc {
	return func(ctx context.Context, tx Tx, e event.Envelope) error { return h(ctx, tx, []event.Envelope{e}) }
}

// Only returns a function that selects one position. Any selects all positions.
func Only(position int64) func(int64) bool { return func(p int64) bool { return p == position } }

func Any(int64) bool { return true }

// Exec returns a function that runs a statement.
func Exec(sql string) func(ctx context.Context, tx Tx) error {
	return func(ctx context.Context, tx Tx) error { return tx.Exec(ctx, sql) }
}

// AllFaults returns the faults of handlers on every store, and those of this kind of store.
func (k *Kind) AllFaults() map[string]Fault {
	all := map[string]Fault{
		"Go error": {"on purpose", func(context.Context, Tx) error { return ErrOnPurpose }},
		"panic":    {"on purpose", func(context.Context, Tx) error { panic("on purpose") }},
		"timeout": {"timeout passed", func(ctx context.Context, _ Tx) error {
			<-ctx.Done()
			return ctx.Err()
		}},
		"another service": {"no route", func(context.Context, Tx) error {
			return fmt.Errorf("call: %w", &net.OpError{Op: "dial", Err: errors.New("no route")})
		}},
	}
	for name, fault := range k.Faults {
		all[name] = fault
	}
	return all
}

// Verify checks that a projection applied each of the default tenant's events but the parked ones once and in order.
func (b *Bundle) Verify(name string, parked ...int64) {
	b.T.Helper()
	if err := b.Check(name, parked...); err != nil {
		b.T.Error(err)
	}
}

// Applied waits until projections have handled the events up to a position, and verifies what they applied.
func (b *Bundle) Applied(rt *millrace.Runtime, position int64, names ...string) {
	b.T.Helper()
	for _, name := range names {
		b.Reaches(rt, name, position)
		b.Verify(name)
	}
}

// Check is Verify, but returns an error instead of failing the test.
func (b *Bundle) Check(name string, parked ...int64) error {
	return b.CheckOf(b.Store, name, parked...)
}

// CheckOf is Check for a tenant. A position may belong to another event after a loss, so that streams and versions
// count as well.
func (b *Bundle) CheckOf(tenant Tenant, name string, parked ...int64) error {
	events, err := AllEvents(b.Ctx, tenant)
	if err != nil {
		return err
	}
	applied, err := b.Store.Applied(b.Ctx, name)
	if err != nil {
		return err
	}
	var want []Applied
	for _, e := range events {
		if !slices.Contains(parked, e.Position) {
			want = append(want, Applied{e.Position, e.Stream, e.Version})
		}
	}
	for i := range max(len(want), len(applied)) {
		switch {
		case i >= len(want):
			return fmt.Errorf("%s applied %d events, %d of them too many: %+v", name, len(applied), len(applied)-i,
				applied[i])
		case i >= len(applied):
			return fmt.Errorf("%s applied %d events, %d are missing: %+v", name, i, len(want)-i, want[i])
		case applied[i] != want[i]:
			return fmt.Errorf("%s applied %+v as event %d of %d, want %+v", name, applied[i], i, len(applied), want[i])
		}
	}
	return nil
}

// Positions returns what a projection applied, in the order in which it did.
func (b *Bundle) Positions(name string) (positions []int64) {
	b.T.Helper()
	applied, err := b.Store.Applied(b.Ctx, name)
	b.Must(err)
	for _, a := range applied {
		positions = append(positions, a.Position)
	}
	return positions
}

// MustCatchUp waits until the projections have handled everything, and checks what they did and that nothing was ever
// parked.
func (b *Bundle) MustCatchUp(rt *millrace.Runtime, names ...string) {
	b.T.Helper()
	head := b.Head()
	for _, name := range names {
		b.Reaches(rt, name, head)
		b.Verify(name)
		all := []projection.DeadLetterState{projection.DeadLetterParked, projection.DeadLetterResolved}
		if n, err := b.Store.DeadLetters(projection.ID{Name: name}).Count(b.Ctx, projection.DeadLetterFilter{All: true},
			all...); n != 0 || err != nil {
			b.T.Errorf("%s: %d events were parked: %v", name, n, err)
		}
	}
}

// Limited returns a handler whose events count as faulty soon, although their faults look like those of the store.
func Limited(h millrace.Handler, limits faults.Limits) millrace.Handler {
	return limited{h, limits}
}

type limited struct {
	millrace.Handler
	limits faults.Limits
}

func (l limited) Engine() handler.Handler {
	h := l.Handler.Engine()
	h.Faults = l.limits
	return h
}
