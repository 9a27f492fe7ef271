package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

// owner is a node that holds the lease of the projection "p", whose read model is the table model. No heartbeat keeps
// the lease, so every claim gets it.
type owner struct {
	t     testing.TB
	store *Store
	node  engine.Node
	lease engine.Lease
}

// newOwner claims the projection of the default tenant in a new store with some events.
func newOwner(t testing.TB, events int) *owner {
	t.Helper()
	store := newStore(t)
	makeModel(t, store)
	if events > 0 {
		mustAppend(t, store.tenant, "s", event.Any, someEvents(events)...)
	}
	return claimAs(t, store, projection.DefaultTenant)
}

func makeModel(t testing.TB, store *Store) {
	t.Helper()
	mustExec(t, store, "create table public.model (position bigint not null, at bigint generated always as identity)")
}

// projectionsOf returns projections without partitions for each of the tenants.
func projectionsOf(tenants []string, names ...string) (list []engine.NewProjection) {
	for _, tenant := range tenants {
		for _, name := range names {
			list = append(list, engine.NewProjection{Tenant: tenant, Name: name, Partitions: 1})
		}
	}
	return list
}

// claimAs makes a new node claim the tenant's projection, even if another node holds it.
func claimAs(t testing.TB, store *Store, tenant string) *owner {
	t.Helper()
	o, err := tryClaim(t, store, tenant)
	if err != nil || o == nil {
		t.Fatalf("the projection of %q was not claimed: %v", tenant, err)
	}
	return o
}

// tryClaim returns nil if another caller is claiming the projection.
func tryClaim(t testing.TB, store *Store, tenant string) (*owner, error) {
	o := &owner{
		t: t, store: store, node: engine.Node{ID: uuid.NewString(),
			Projections: []string{"p"}, LeaseDuration: time.Minute},
	}
	if _, err := store.plane().Ensure(testContext(t),
		projectionsOf([]string{tenant}, o.node.Projections...)); err != nil {
		return nil, err
	}
	o.node.Tenants = []string{tenant}
	leases, err := claimFree(testContext(t), store, o.node, 1)
	if err != nil || len(leases) == 0 {
		return nil, err
	}
	o.lease = leases[0]
	return o, nil
}

// claimFree makes a node claim up to limit leases of what it finds free. Batches of dead owners live on.
func claimFree(ctx context.Context, store *Store, node engine.Node, limit int) ([]engine.Lease, error) {
	free, err := store.port().Free(ctx, node, true, true)
	if err != nil || len(free) == 0 {
		return nil, err
	}
	var rows []int32
	for _, seat := range free[:min(limit, len(free))] {
		rows = append(rows, seat.Row)
	}
	claim, err := store.port().claim(ctx, node, rows, true)
	return claim.leases, err
}

// onePool is a store whose pool has a single connection, so that each use of it shows what the previous use left.
func onePool(t testing.TB, changes ...func(*pgxpool.Config)) *Store {
	t.Helper()
	dsn := pgtest.Database(t)
	migrated(t, openStore(t, dsn, Options{}))
	store := openStore(t, dsn, Options{}, append(changes, connections(1))...)
	makeModel(t, store)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	return store
}

// pending reads what the lease's checkpoint has not reached.
func (o *owner) pending() ([]event.Envelope, error) {
	page, err := o.store.port().Read(testContext(o.t), o.lease.ID.Tenant,
		engine.ReadRange{After: o.lease.Checkpoint, UpTo: 1 << 40, Limit: 1000, MaxBytes: 1 << 20})
	return page.Events, err
}

// apply runs one batch over all that is pending. The lease stays as it is.
func (o *owner) apply(h batchFunc, opts engine.ApplyOptions) error {
	o.t.Helper()
	events, err := o.pending()
	if err != nil || len(events) == 0 {
		o.t.Fatalf("there is nothing to apply: %v", err)
	}
	batch := engine.Batch{Events: events, To: events[len(events)-1].Position}
	return o.store.port().apply(h, opts)(testContext(o.t), o.lease, batch)
}

// reload reads a lease anew, as the node does for its projections.
func reload(ctx context.Context, store *Store, lease engine.Lease) (engine.Lease, error) {
	found, err := store.port().Leases(ctx, []int32{lease.Row})
	if err != nil {
		return engine.Lease{}, err
	}
	var now engine.Lease
	if len(found) > 0 {
		now = found[0]
	}
	return now, lease.Check(now, len(found) > 0)
}

// refresh takes the lease over as the database has it, if the owner holds it still.
func (o *owner) refresh() {
	o.t.Helper()
	lease, err := reload(testContext(o.t), o.store, o.lease)
	if err != nil {
		o.t.Fatal(err)
	}
	o.lease = lease
}

func (o *owner) checkpoint() int64 {
	o.t.Helper()
	return one[int64](o.t, o.store, fmt.Sprintf("select checkpoint from millrace.leases where id = %d", o.lease.Row))
}

func (o *owner) written() int {
	o.t.Helper()
	return one[int](o.t, o.store, "select count(*) from public.model")
}

// untouched checks that neither checkpoint nor read model moved.
func (o *owner) untouched() {
	o.t.Helper()
	if written, checkpoint := o.written(), o.checkpoint(); written != 0 || checkpoint != o.lease.Checkpoint {
		o.t.Errorf("%d rows written, checkpoint %d, want none and %d", written, checkpoint, o.lease.Checkpoint)
	}
}

// applied checks that the n pending events were written and the checkpoint covers them.
func (o *owner) applied(n int) {
	o.t.Helper()
	if written := o.written(); written != n || o.checkpoint() <= o.lease.Checkpoint {
		o.t.Errorf("%d rows written, checkpoint %d; want %d rows and a checkpoint beyond %d", written, o.checkpoint(),
			n, o.lease.Checkpoint)
	}
}

// write is a handler that writes the positions of its events.
func write(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
	for _, e := range events {
		if _, err := tx.Exec(ctx, "insert into public.model (position) values ($1)", e.Position); err != nil {
			return err
		}
	}
	return nil
}

// writeAnd is a handler that writes and then does something else.
func writeAnd(then func(ctx context.Context, tx pgx.Tx) error) batchFunc {
	return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		if err := write(ctx, tx, events); err != nil {
			return err
		}
		return then(ctx, tx)
	}
}

// wantClass checks the class of err.
func wantClass(t testing.TB, err error, want faults.Class) *faults.Fault {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want a fault of class %q", want)
	}
	fault := classify(err)
	if fault.Class != want {
		t.Errorf("%v: class %q, want %q", err, fault.Class, want)
	}
	return fault
}

// strange opens a connection that the store does not use.
func strange(t testing.TB, store *Store) *pgx.Conn {
	t.Helper()
	conn := must(pgx.ConnectConfig(testContext(t), store.pool.Config().ConnConfig))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

type (
	batchFunc    = func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error
	deliveryFunc = func(ctx context.Context, d handler.Delivery) error
)

func (s port) apply(h batchFunc, o engine.ApplyOptions) engine.ApplyFunc {
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	return s.Apply(Batch(h).handler, o)
}

func (s port) deliver(h deliveryFunc, o engine.DeliverOptions) engine.ApplyFunc {
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Slot = func(context.Context, projection.ID) (func(), error) { return func() {}, nil }
	if o.LeaseDeadline == nil {
		o.LeaseDeadline = func() (time.Time, <-chan struct{}) { return time.Now().Add(time.Hour), nil }
	}
	return s.Deliver(handler.Handler{Deliver: h}, o)
}
