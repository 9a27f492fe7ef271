package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
)

// batcher holds the lease of the projection "p", whose read model is the table model.
type batcher struct {
	t     testing.TB
	store *Store
	lease engine.Lease
}

// newBatcher makes a new store with some events.
func newBatcher(t testing.TB, events int) *batcher {
	t.Helper()
	store := newStore(t)
	mustExec(t, store, "create table model (at integer primary key autoincrement, position integer not null)")
	if events > 0 {
		mustAppend(t, store.tenant, "s", event.Any, someEvents(events)...)
	}
	return newBatcherOf(t, store, "p")
}

func newBatcherOf(t testing.TB, store *Store, name string) *batcher {
	t.Helper()
	b := &batcher{
		t: t, store: store, lease: engine.Lease{Owner: "node-1",
			Epoch: 3, ID: projection.ID{Tenant: projection.DefaultTenant, Name: name}, Incarnation: incarnation},
	}
	mustExec(t, store,
		"insert into millrace_projections (tenant, name, token) select id, ?, 'token' from millrace_tenants where name = ?", name, projection.DefaultTenant)
	b.lease.Row = one[int32](t, store, "select id from millrace_projections where name = ?", name)
	mustExec(t, store, "insert into millrace_leases (id, owner, epoch) values (?, ?, ?)", b.lease.Row, b.lease.Owner,
		b.lease.Epoch)
	return b
}

type handlerFunc = func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error

// pending returns a batch of what the checkpoint has not reached, at most limit events.
func (b *batcher) pending(limit int) engine.Batch {
	b.t.Helper()
	head := one[int64](b.t, b.store, "select head from millrace_tenants where name = ?", b.lease.ID.Tenant)
	page, err := b.store.port().Read(testContext(b.t), b.lease.ID.Tenant,
		engine.ReadRange{After: b.lease.Checkpoint, UpTo: head, Limit: limit})
	if err != nil || len(page.Events) == 0 {
		b.t.Fatalf("there is nothing to apply: %v", err)
	}
	return engine.Batch{Events: page.Events, To: page.Events[len(page.Events)-1].Position}
}

// limit is the timeout of handlers that should not meet it.
const limit = time.Minute

// apply runs a batch of all that is pending. If it succeeds, the lease has the new checkpoint.
func (b *batcher) apply(h handlerFunc, timeout time.Duration) error {
	b.t.Helper()
	return b.run(testContext(b.t), b.pending(1000), h, timeout)
}

func (b *batcher) run(ctx context.Context, batch engine.Batch, h handlerFunc, timeout time.Duration) error {
	err := b.store.port().Apply(Batch(h).Engine(), engine.ApplyOptions{Timeout: timeout})(ctx, b.lease, batch)
	if err == nil {
		b.lease.Checkpoint = batch.To
	}
	return err
}

// record is a handler that records the positions.
func record(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
	for _, e := range events {
		if _, err := tx.ExecContext(ctx, "insert into model (position) values (?)", e.Position); err != nil {
			return err
		}
	}
	return nil
}

// holds checks the number of rows of the model and the checkpoint.
func (b *batcher) holds(rows int, checkpoint int64) {
	b.t.Helper()
	n := one[int](b.t, b.store, "select count(*) from model")
	at := one[int64](b.t, b.store, "select checkpoint from millrace_leases where id = ?", b.lease.Row)
	if n != rows || at != checkpoint {
		b.t.Errorf("the model has %d rows, want %d; the checkpoint is %d, want %d", n, rows, at, checkpoint)
	}
}

// faultOf returns the fault of an error, which there must be.
func faultOf(t testing.TB, err error) *faults.Fault {
	t.Helper()
	var fault *faults.Fault
	if !errors.As(err, &fault) {
		t.Fatalf("not a fault: %v", err)
	}
	return fault
}

type driverValue = driver.Value

// refresh makes the writer open another connection.
func (s *Store) refresh(t testing.TB) {
	t.Helper()
	session := must(s.writer.db.Conn(testContext(t)))(t)
	noError(t, session.Raw(func(c any) error { c.(*conn).loan.spoiled = true; return nil }))
	noError(t, session.Close())
}
