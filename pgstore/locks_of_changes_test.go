package pgstore

import (
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// While a living node has leases, SuspensionEnded waits for none of its commits, which would hold the structural lock
// meanwhile.
func TestSuspensionDoesNotWaitForLivingOwners(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	rows := ensured(t, store, "living", "dead")
	node := aNode()
	present(t, store, node)
	claimed(t, store, node, true, rows[:1]...)
	claimed(t, store, aNode(), true, rows[1:]...)
	noError(t, store.plane().SetTenantDesired(ctx, projection.DefaultTenant, engine.WantPause))
	commit := must(store.pool.Begin(ctx))(t)
	_, err := commit.Exec(ctx, "select from millrace.leases where id = $1 for no key update", rows[0])
	noError(t, err)
	began := time.Now()
	time.AfterFunc(2*time.Second, func() { _ = commit.Rollback(ctx) })
	if free, err := store.plane().SuspensionEnded(ctx, projection.DefaultTenant); free || err != nil {
		t.Error(free, err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it waited for %v", took)
	}
	if n := one[int](t, store, "select count(*) from millrace.leases where owner is not null"); n != 1 {
		t.Errorf("%d leases have an owner, want that of the living node", n)
	}
}

func TestPurgeLeavesADeadLetterThatIsParkedAgainMeanwhile(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 1)
	ctx := testContext(t)
	mustExec(t, d.store,
		`insert into millrace.dead_letters (projection_id, position, stream_id, stream_version, type, error, stack, attempts, first_failed_at, last_failed_at, state, ended_at)
		values ($1::integer, 1, 'a', 1, 'T', 'e', '', 1, now(), now(), 'resolved', now())`, d.lease.Row)
	tx := must(d.store.pool.Begin(ctx))(t)
	_, err := tx.Exec(ctx, "update millrace.dead_letters set state = 'parked', ended_at = null")
	noError(t, err)
	done := make(chan error)
	go func() {
		_, err := d.plane().Purge(ctx, d.lease.ID, projection.DeadLetterFilter{}, 0, 10)
		done <- err
	}()
	waitBlocked(t, d.store, 1)
	noError(t, tx.Commit(ctx))
	noError(t, <-done)
	if n := one[int](t, d.store, "select count(*) from millrace.dead_letters where state = 'parked'"); n != 1 {
		t.Error("the purge deleted a parked dead letter")
	}
}
