package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
	"github.com/millrace-go/millrace/projection"
)

func TestFirstFailureOfAnEventIsKeptWhileItFails(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	fail := func(position int64, attempt int) time.Time {
		t.Helper()
		first, err := o.store.port().RecordFailure(testContext(t), o.lease, projection.Failure{Event: event.Envelope{Position: position}, Attempt: attempt, Err: errors.New("bad")})
		if err != nil || first.IsZero() {
			t.Fatal(first, err)
		}
		return first
	}
	first := fail(1, 1)
	if again := fail(1, 2); !again.Equal(first) {
		t.Errorf("it failed first at %v, and then at %v", first, again)
	}
	o.refresh()
	if !o.lease.FailingSince.Equal(first) {
		t.Errorf("the lease says %v, want %v", o.lease.FailingSince, first)
	}
	if other := fail(2, 1); !other.After(first) {
		t.Errorf("another event failed first at %v, the one before it at %v", other, first)
	}
}

func TestHaltedProjectionStaysSoUntilItIsResumed(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	ctx := testContext(t)
	must(o.store.port().RecordFailure(ctx, o.lease, projection.Failure{Event: event.Envelope{Position: 1}, Attempt: 3, Err: errors.New("bad")}))(t)
	noError(t, o.store.port().Halt(ctx, o.lease, "bad\x00 event"))
	noError(t, o.store.port().SetFailed(ctx, o.lease, ""))
	noError(t, o.store.port().SetFailed(ctx, o.lease, "something else"))
	next := claimAs(t, o.store, projection.DefaultTenant)
	if !next.lease.Halted || next.lease.Failed == "" || next.lease.FailingSince.IsZero() {
		t.Errorf("the next owner claimed %+v", next.lease)
	}
	noError(t, o.store.port().SetDesiredState(ctx, o.lease.ID, engine.WantPause))
	next.refresh()
	if l := next.lease; !l.Halted || l.Failed != wire.Text("bad\x00 event") || l.Attempts != 3 || l.FailingPosition != 1 {
		t.Errorf("it is not halted any more: %+v", l)
	}
	noError(t, o.store.port().SetDesiredState(ctx, o.lease.ID, engine.WantRun))
	next.refresh()
	if l := next.lease; l.Halted || l.Failed != "" || l.Attempts != 0 || l.FailingPosition != 0 || !l.FailingSince.IsZero() {
		t.Errorf("after it was resumed: %+v", l)
	}
	// One that is not halted keeps its attempts.
	must(o.store.port().RecordFailure(ctx, next.lease, projection.Failure{Event: event.Envelope{Position: 1}, Attempt: 2, Err: errors.New("bad")}))(t)
	noError(t, o.store.port().SetDesiredState(ctx, o.lease.ID, engine.WantRun))
	next.refresh()
	if next.lease.Attempts != 2 {
		t.Errorf("%d attempts after a resumption, want 2", next.lease.Attempts)
	}
}

// Whoever claims while a halt is under way must not read what was before it.
func TestClaimWaitsForAHaltUnderWay(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	ctx := testContext(t)
	err := o.store.port().durable(ctx, "halt", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, o.store.control.sql("halt"), o.lease.Row, o.lease.Owner, o.lease.Epoch, "bad"); err != nil {
			return err
		}
		claimed, err := claimNow(ctx, o)
		if len(claimed) != 0 {
			t.Errorf("claimed %+v meanwhile", claimed)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if next, err := claimNow(ctx, o); err != nil || len(next) != 1 || !next[0].Halted {
		t.Errorf("after it: %+v, %v", next, err)
	}
}

// claimNow claims what o holds for another node, as if o were dead.
func claimNow(ctx context.Context, o *owner) ([]engine.Lease, error) {
	if _, err := o.store.pool.Exec(ctx, "update millrace.nodes set expires_at = heartbeat_at"); err != nil {
		return nil, err
	}
	return o.store.port().Claim(ctx, engine.Node{ID: "00000000-0000-0000-0000-000000000001", LeaseDuration: time.Hour}, []int32{o.lease.Row}, true)
}
