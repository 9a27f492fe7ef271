package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/projection"
)

// deliver runs one delivery of all that is pending.
func (b *batcher) deliver(h func(ctx context.Context, d handler.Delivery) error) error {
	b.t.Helper()
	opts := engine.DeliverOptions{Timeout: limit, Policy: engine.Policy{OnFailure: projection.ActionPark,
		MaxFailureShare: -1, MaxParked: -1},
		Slot:          func(context.Context, projection.ID) (func(), error) { return func() {}, nil },
		LeaseDeadline: func() (time.Time, <-chan struct{}) { return time.Now().Add(time.Hour), nil }}
	return b.store.port().Deliver(handler.Handler{Deliver: h}, opts)(testContext(b.t), b.lease, b.pending(1000))
}

func (b *batcher) checkpoint() int64 {
	b.t.Helper()
	return one[int64](b.t, b.store, "select checkpoint from millrace_leases where id = ?1", b.lease.Row)
}

// An acknowledgement waits for its turn at the file, and does not fail.
func TestAcknowledgementWaitsForTheTransactionInProgress(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 2)
	held, release := make(chan struct{}), make(chan struct{})
	other := make(chan error, 1)
	go func() {
		other <- b.store.InTx(testContext(t), func(context.Context, *sql.Tx) error {
			close(held)
			<-release
			return nil
		})
	}()
	<-held
	err := b.deliver(func(ctx context.Context, d handler.Delivery) error {
		acknowledged := make(chan error, 1)
		go func() { acknowledged <- d.Ack(ctx, 2) }()
		select {
		case err := <-acknowledged:
			t.Errorf("it did not wait: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		close(release)
		return <-acknowledged
	})
	noError(t, errors.Join(err, <-other))
	if at := b.checkpoint(); at != 2 {
		t.Errorf("checkpoint %d", at)
	}
}

// An acknowledgement within a transaction of the store would wait for itself. It fails at once, and is counted against
// no event: only a change of the handler helps.
func TestAcknowledgementWithinATransactionStopsTheProjection(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 3)
	err := b.deliver(func(ctx context.Context, d handler.Delivery) error {
		if err := d.Ack(ctx, 1); err != nil {
			return err
		}
		return b.store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(record(ctx, tx, d.Events()), d.Ack(ctx, 3))
		})
	})
	var partial *engine.PartialResult
	if !errors.As(err, &partial) || partial.To != 1 || !errors.Is(err, ErrWithinTx) {
		t.Fatalf("%v", err)
	}
	if fault := classify(partial.Err); fault.Class != faults.Configuration {
		t.Errorf("%+v", fault)
	}
	if n := one[int](t, b.store, "select count(*) from model"); n != 0 || b.checkpoint() != 1 {
		t.Errorf("%d rows, checkpoint %d", n, b.checkpoint())
	}
}

// The rejected event, the checkpoint and what goes with them are one transaction.
func TestRejectionThatFailsMovesNothing(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 2)
	mustExec(t, b.store,
		"create trigger millrace_dead_letters_insert_closed before insert on millrace_dead_letters begin select raise(abort, 'no'); end")
	err := b.deliver(func(ctx context.Context, d handler.Delivery) error { return d.Reject(ctx, 1, errors.New("bad")) })
	var partial *engine.PartialResult
	if !errors.As(err, &partial) || partial.To != 0 || len(partial.Rejected) != 0 {
		t.Fatalf("%v", err)
	}
	if parked := one[int](t, b.store, "select parked from millrace_projections"); parked != 0 || b.checkpoint() != 0 {
		t.Errorf("%d parked, checkpoint %d", parked, b.checkpoint())
	}
	mustExec(t, b.store, "drop trigger millrace_dead_letters_insert_closed")
	err = b.deliver(func(ctx context.Context, d handler.Delivery) error {
		return errors.Join(d.Reject(ctx, 1, errors.New("bad")), d.Ack(ctx, 2))
	})
	if !errors.As(err, &partial) || partial.To != 2 || len(partial.Rejected) != 1 || partial.Err != nil {
		t.Errorf("without the fault: %v", err)
	}
}
