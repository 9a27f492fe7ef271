package pgstore

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// withoutFence makes of the advance what it must not be: a conditional update that matches no row and goes on.
const withoutFence = `create or replace function millrace.advance(batch text, lease integer, lease_owner uuid, lease_epoch bigint, incarnation bigint, old bigint, new bigint)
	returns void language sql as $$
	update millrace.leases l set checkpoint = new
	 where l.id = lease and l.owner = lease_owner and l.epoch = lease_epoch and l.checkpoint = old $$`

func TestBatchCommitsReadModelAndCheckpointTogether(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	noError(t, o.apply(write, engine.ApplyOptions{}))
	o.applied(3)
}

func TestStaleEpochCannotBegin(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	claimAs(t, o.store, projection.DefaultTenant)
	err := o.apply(func(context.Context, pgx.Tx, []event.Envelope) error {
		t.Error("the handler of a lost lease was called")
		return nil
	}, engine.ApplyOptions{})
	wantClass(t, err, engine.LeaseLost)
	if !errors.Is(err, projection.ErrLeaseLost) {
		t.Errorf("%v is not ErrLeaseLost", err)
	}
	o.untouched()
}

func TestLeaseLostUnderTheHandlerTakesItsWritesAlong(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	var next *owner
	steal := func(context.Context, pgx.Tx) error {
		next = claimAs(t, o.store, projection.DefaultTenant)
		return nil
	}
	err := o.apply(writeAnd(steal), engine.ApplyOptions{})
	wantClass(t, err, engine.LeaseLost)
	if !errors.Is(err, projection.ErrLeaseLost) {
		t.Errorf("%v is not ErrLeaseLost", err)
	}
	o.untouched()
	if err := next.apply(write, engine.ApplyOptions{}); err != nil {
		t.Fatalf("the new owner: %v", err)
	}
	next.applied(3)
}

// An update that matches no row is no error, and the commit behind it commits.
func TestConditionalUpdateInPlaceOfTheFenceWouldCommit(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	mustExec(t, o.store, withoutFence)
	steal := func(context.Context, pgx.Tx) error {
		claimAs(t, o.store, projection.DefaultTenant)
		return nil
	}
	noError(t, o.apply(writeAnd(steal), engine.ApplyOptions{}))
	if o.written() != 3 || o.checkpoint() != o.lease.Checkpoint {
		t.Errorf("%d rows, checkpoint %d: the control does not show the damage", o.written(), o.checkpoint())
	}
}

func TestStaleCheckpointIsRefused(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	noError(t, o.apply(write, engine.ApplyOptions{}))
	// The lease still says what it said before the first batch, as after a commit whose answer got lost.
	wantClass(t, o.apply(write, engine.ApplyOptions{}), engine.LeaseLost)
	o.applied(3)
}

func TestLeaseOfADeadNodeIsClaimedAndOfALivingOneIsNot(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	ctx := testContext(t)
	session := must(o.store.port().Connect(ctx, o.node))(t)
	defer func() { _ = session.Close(ctx) }()
	other := engine.Node{ID: "5f0d7b7c-37f4-4b5a-8a0c-3a9e0c6f4a11", Projections: []string{"p"}}
	claim := func() []engine.Lease {
		leases := must(claimFree(ctx, o.store, other, 10))(t)
		return leases
	}
	if got := claim(); len(got) != 0 {
		t.Fatalf("claimed %v from a node that is alive", got)
	}
	mustExec(t, o.store, "update millrace.nodes set expires_at = clock_timestamp() - interval '1 ms'")
	got := claim()
	if len(got) != 1 || got[0].Epoch != o.lease.Epoch+1 || got[0].CrashCount != o.lease.CrashCount+1 {
		t.Fatalf("claimed %v after %v", got, o.lease)
	}
	if _, err := reload(ctx, o.store, o.lease); !errors.Is(err, projection.ErrLeaseLost) {
		t.Errorf("reload of the lost lease: %v", err)
	}
	wantClass(t, o.apply(write, engine.ApplyOptions{}), engine.LeaseLost)
}

// race lets two owners take the lease from each other all the time while both apply, and returns how many rows of the
// read model are doubled, and how many are missing.
func race(t *testing.T, store *Store, events int) (doubled, missing int) {
	t.Helper()
	err := together(2, func(int) error {
		for {
			o, err := tryClaim(t, store, projection.DefaultTenant)
			if err != nil {
				return err
			}
			for range 4 {
				if o == nil {
					break // the other one is claiming
				}
				pending, err := o.pending()
				if err != nil || len(pending) == 0 {
					return err
				}
				batch := engine.Batch{Events: pending[:min(3, len(pending))]}
				batch.To = batch.Events[len(batch.Events)-1].Position
				err = store.port().apply(write, engine.ApplyOptions{Timeout: testDeadline})(testContext(t), o.lease, batch)
				if err != nil && classify(err).Class != engine.LeaseLost {
					return err
				}
				if err == nil {
					o.lease.Checkpoint = batch.To
				}
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
	return one[int](t, store, "select count(*) - count(distinct position) from public.model"),
		events - one[int](t, store, "select count(distinct position) from public.model")
}

func TestTwoOwnersThatRaceApplyEverythingOnce(t *testing.T) {
	t.Parallel()
	const events = 120
	o := newOwner(t, events)
	if doubled, missing := race(t, o.store, events); doubled != 0 || missing != 0 {
		t.Errorf("%d events doubled, %d missing", doubled, missing)
	}
	if back := one[int](t, o.store, `select count(*) from (select position < lag(position) over (order by at) as back
		from public.model) as x where back`); back != 0 {
		t.Errorf("%d events out of order", back)
	}
}

func TestTwoOwnersThatRaceWithoutTheFenceApplyTwice(t *testing.T) {
	t.Parallel()
	const events = 120
	for range 10 {
		o := newOwner(t, events)
		mustExec(t, o.store, withoutFence)
		if doubled, _ := race(t, o.store, events); doubled > 0 {
			return
		}
	}
	t.Error("nothing was doubled in ten races: they are none")
}

// skipsLocked tells whether a claim would pass over the lease because somebody has locked its row.
func skipsLocked(t *testing.T, conn *pgx.Conn, lease engine.Lease) bool {
	t.Helper()
	var free bool
	err := conn.QueryRow(testContext(t), `select exists (select from millrace.leases where id = $1
		for no key update skip locked)`, lease.Row).Scan(&free)
	if err != nil {
		t.Fatal(err)
	}
	return !free
}

func TestNoRowOfLeasesIsLockedWhileTheHandlerRuns(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	conn := strange(t, o.store)
	err := o.apply(writeAnd(func(ctx context.Context, tx pgx.Tx) error {
		if skipsLocked(t, conn, o.lease) {
			t.Error("a claim would have to wait for the handler")
		}
		// The control: with a lock on the row the question has the other answer.
		if _, err := tx.Exec(ctx, "select 1 from millrace.leases where id = $1 for no key update", o.lease.Row); err != nil {
			return err
		}
		if !skipsLocked(t, conn, o.lease) {
			t.Error("a lock on the row was not noticed")
		}
		return nil
	}), engine.ApplyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if skipsLocked(t, conn, o.lease) {
		t.Error("a lock outlived the batch")
	}
}
