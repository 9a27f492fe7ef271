package pgstore

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// A process that is frozen or cut off between two statements of a transaction of ours may have locked its lease's row, and who
// takes leases passes over those. Its session is none of a batch, which the next owner would end.
func TestFrozenOwnerDoesNotKeepItsLeaseLocked(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 0)
	var next *owner
	err := o.store.durable(testContext(t), "be frozen", func(tx pgx.Tx) error {
		_, err := tx.Exec(testContext(t), o.store.control.scheduleReplay, o.lease.Row, o.lease.Owner, o.lease.Epoch, 1, 1)
		if err != nil {
			return err
		}
		if early, err := tryClaim(t, o.store, projection.DefaultTenant); err != nil || early != nil {
			t.Errorf("claimed %v at once, %v: nothing is locked, so this shows nothing", early, err)
		}
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for limit := time.Now().Add(20 * time.Second); next == nil && time.Now().Before(limit); <-tick.C {
			if next, err = tryClaim(t, o.store, projection.DefaultTenant); err != nil {
				return err
			}
		}
		return nil
	})
	if next == nil {
		t.Fatalf("nobody could claim the lease: %v", err)
	}
	if fault := o.store.port().Classify(err); err == nil || fault.Class != engine.Infrastructure {
		t.Errorf("the frozen transaction ended with %v, want a fault of the infrastructure", err)
	}
}
