package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
)

// Half of an append is never committed. The first case is an append that still runs in a goroutine when the function of
// the transaction returns. The second is an append whose context ends.
func TestHalfOfAnAppendIsNotCommitted(t *testing.T) {
	t.Parallel()
	const events = 20_000
	b := newBatcher(t, 1)
	// begun waits until the append has written events.
	begun := func(tx *sql.Tx) error {
		for n := 0; n < 10; {
			if err := tx.QueryRow("select count(*) from millrace_events where stream_id = 'half'").Scan(&n); err != nil {
				return err
			}
		}
		return nil
	}
	whole := func(when string) {
		t.Helper()
		n, head := one[int64](t, b.store, "select count(*) from millrace_events"),
			one[int64](t, b.store, "select head from millrace_tenants")
		if n != head {
			t.Errorf("%s: %d events, the head is %d", when, n, head)
		}
		if r := mustAppend(t, b.store.tenant, "s", event.Any, someEvents(1)...); r.Positions[0] != head+1 {
			t.Errorf("%s: position %d after %d", when, r.Positions[0], head)
		}
	}

	left := make(chan error, 1)
	fn := func(ctx context.Context, tx *sql.Tx) error {
		go func() {
			_, err := b.store.AppendTx(context.WithoutCancel(ctx), tx, "half", event.Any, someEvents(events)...)
			left <- err
		}()
		return begun(tx)
	}
	err := b.apply(func(ctx context.Context, tx *sql.Tx, _ []event.Envelope) error { return fn(ctx, tx) }, limit)
	if f := faultOf(t, err); f.Class != faults.Handler || !errors.Is(err, ErrTxControl) {
		t.Errorf("batch: %v", err)
	}
	if err := <-left; err == nil {
		t.Error("the goroutine's append was answered")
	}
	b.holds(0, 0)
	whole("batch")
	if err := b.store.InTx(testContext(t), fn); !errors.Is(err, ErrTxControl) {
		t.Errorf("transaction: %v", err)
	}
	if err := <-left; err == nil {
		t.Error("the goroutine's append was answered")
	}
	whole("transaction")

	err = b.store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
		ended, end := context.WithCancel(ctx)
		defer end()
		go func() {
			_, err := b.store.AppendTx(ended, tx, "half", event.Any, someEvents(events)...)
			left <- err
		}()
		err := begun(tx)
		end()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("append: %v", err)
		}
		return err
	})
	t.Logf("a transaction that ignores that its append was cancelled: %v", err)
	whole("cancelled")
}
