package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
)

func TestFirstFailureOfAnEventIsKeptWhileItFails(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	fail := func(position int64, attempt int) time.Time {
		t.Helper()
		first, err := o.store.plane().RecordFailure(testContext(t), o.lease,
			projection.Failure{Event: event.Envelope{Position: position}, Attempt: attempt, Err: errors.New("bad")},
			time.Second)
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
	must(o.store.plane().RecordFailure(ctx, o.lease,
		projection.Failure{Event: event.Envelope{Position: 1}, Attempt: 3, Err: errors.New("bad")}, time.Second))(t)
	noError(t, o.store.plane().Halt(ctx, o.lease, "bad\x00 event"))
	noError(t, o.store.plane().SetFailed(ctx, o.lease, ""))
	noError(t, o.store.plane().SetFailed(ctx, o.lease, "something else"))
	next := claimAs(t, o.store, projection.DefaultTenant)
	if !next.lease.Halted || next.lease.Failed == "" || next.lease.FailingSince.IsZero() {
		t.Errorf("the next owner claimed %+v", next.lease)
	}
	noError(t, o.store.plane().SetDesiredState(ctx, o.lease.ID, engine.WantPause))
	next.refresh()
	if l := next.lease; !l.Halted || l.Failed != excerpt.Storable("bad\x00 event") || l.Attempts != 3 ||
		l.FailingPosition != 1 {
		t.Errorf("it is not halted any more: %+v", l)
	}
	noError(t, o.store.plane().SetDesiredState(ctx, o.lease.ID, engine.WantRun))
	next.refresh()
	if l := next.lease; l.Halted || l.Failed != "" || l.Attempts != 0 || l.FailingPosition != 0 ||
		!l.FailingSince.IsZero() {
		t.Errorf("after it was resumed: %+v", l)
	}
	// One that is not halted keeps its attempts.
	must(o.store.plane().RecordFailure(ctx, next.lease,
		projection.Failure{Event: event.Envelope{Position: 1}, Attempt: 2, Err: errors.New("bad")}, time.Second))(t)
	noError(t, o.store.plane().SetDesiredState(ctx, o.lease.ID, engine.WantRun))
	next.refresh()
	if next.lease.Attempts != 2 {
		t.Errorf("%d attempts after a resumption, want 2", next.lease.Attempts)
	}
}

// A claim during a halt must not read the state before it.
func TestClaimWaitsForAHaltInProgress(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	ctx := testContext(t)
	noError(t, o.store.port().durable(ctx, "halt", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, o.store.control.sql("lock_lease"), o.lease.Row); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, o.store.control.sql("halt"), o.lease.Row, "bad"); err != nil {
			return err
		}
		claimed, err := claimNow(ctx, o)
		if len(claimed) != 0 {
			t.Errorf("claimed %+v meanwhile", claimed)
		}
		return err
	}))
	if next, err := claimNow(ctx, o); err != nil || len(next) != 1 || !next[0].Halted {
		t.Errorf("after it: %+v, %v", next, err)
	}
}

// claimNow claims what o holds for another node, as if o were dead.
func claimNow(ctx context.Context, o *owner) ([]engine.Lease, error) {
	if _, err := o.store.pool.Exec(ctx, "update millrace.nodes set expires_at = heartbeat_at"); err != nil {
		return nil, err
	}
	return o.store.port().Claim(ctx, engine.Node{ID: "00000000-0000-0000-0000-000000000001", LeaseDuration: time.Hour},
		[]int32{o.lease.Row}, true)
}

// setBack sets the checkpoint back by hand, as an operator does to apply events again.
func (d *drawer) setBack(to int64) {
	d.t.Helper()
	mustExec(d.t, d.store, "update millrace.leases set checkpoint = $1 where id = $2", to, d.lease.Row)
	d.refresh()
}

// If the checkpoint was set back over an event that is or was parked, the event is parked again.
func TestEventIsParkedAgainIfTheCheckpointWasSetBack(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(d *drawer, at int64){
		"parked": func(*drawer, int64) {},
		"resolved": func(d *drawer, _ int64) {
			d.replay(d.give("replay", projection.DeadLetterFilter{All: true}, 10))
		},
		"discarded": func(d *drawer, _ int64) {
			_, err := d.plane().Discard(testContext(d.t), d.lease,
				d.give("discard", projection.DeadLetterFilter{All: true}, 10))
			d.must(err)
		},
		"being replayed": func(d *drawer, _ int64) {
			d.begin(d.give("replay", projection.DeadLetterFilter{All: true}, 10), 0)
		},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				d := newDrawer(t, 2)
				at := d.at["a"][0]
				var streams []string
				if stream {
					streams = []string{"a"}
				}
				d.park(at, stream)
				first := d.one(at).FirstFailedAt
				before(d, at)
				for range 2 {
					d.setBack(at - 1)
					d.park(at, stream)
					d.mustHave([]int64{at}, streams...)
					if l := d.one(at); l.State != projection.DeadLetterParked || l.BlockedByStream || l.Attempts != 4 ||
						l.Replays != 0 || !l.EndedAt.IsZero() || d.lease.Checkpoint != at ||
						name == "parked" && !l.FirstFailedAt.Equal(first) {
						t.Errorf("%+v at checkpoint %d", l, d.lease.Checkpoint)
					}
				}
				// A replay in progress resolves nothing, and the parked event can be replayed.
				d.replay(d.give("replay", projection.DeadLetterFilter{All: true}, 10))
				d.mustHave(nil)
			})
		}
	}
}

// If the checkpoint was set back over a parked stream, the stream keeps the failed event as its head.
func TestParkedStreamIsUnchangedIfTheCheckpointWasSetBack(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 3)
	a := d.at["a"]
	d.park(a[0], true)
	d.must(d.run(write, d.batch(a[2], a[1:]...)))
	head := d.one(a[0])
	command := d.give("replay", projection.DeadLetterFilter{All: true}, 10)
	for _, replaying := range []bool{false, true} {
		if replaying {
			d.begin(command, 0)
			head = d.one(a[0])
		}
		d.setBack(0)
		d.must(d.run(write, d.batch(a[2], a...)))
		d.mustHave(a, "a")
		if l := d.one(a[0]); l != head || !d.one(a[1]).BlockedByStream {
			t.Errorf("replaying %v: the head was\n%+v, and is\n%+v", replaying, head, l)
		}
	}
	// A discarded event comes back as the head, and is blocked by no other.
	_, err := d.plane().Discard(testContext(t), d.lease,
		d.give("discard", projection.DeadLetterFilter{IDs: []int64{head.ID}}, 1))
	d.must(err)
	d.setBack(0)
	d.must(d.run(write, d.batch(a[2], a...)))
	d.mustHave(a, "a")
	if d.one(a[0]).BlockedByStream {
		t.Errorf("%+v", d.one(a[0]))
	}
	if got := d.replay(command); len(got) != 3 {
		t.Errorf("replayed %v", got)
	}
	d.mustHave(nil)
}

// A replay in progress whose dead letter was parked again applies nothing.
func TestReplayOfADeadLetterThatWasParkedAgainAppliesNothing(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 2)
	at := d.at["a"][0]
	d.park(at, false)
	r := d.begin(d.give("replay", projection.DeadLetterFilter{All: true}, 10), 0)
	before := len(d.model())
	err := d.run(writeAnd(func(context.Context, pgx.Tx) error {
		// Another connection of the same owner, whose batch was cut off and comes late.
		other := &drawer{
			owner: &owner{t: d.t, store: d.store, node: d.node, lease: d.lease}, at: d.at, events: d.events,
		}
		other.setBack(at - 1)
		other.park(at, false)
		return nil
	}), d.again(r))
	wantClass(t, err, faults.LeaseLost)
	d.refresh()
	d.mustHave([]int64{at})
	if n := len(d.model()); n != before {
		t.Errorf("%d events more were applied", n-before)
	}
}

func TestTextsInTheDatabaseHaveALimit(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	ctx, plane := testContext(t), o.store.plane()
	long := strings.Repeat("€", 1<<20)
	must(plane.RecordFailure(ctx, o.lease, projection.Failure{Event: event.Envelope{Position: 1},
		Attempt: 1, Err: errors.New(long)}, time.Second))(t)
	noError(t, plane.SetFailed(ctx, o.lease, long))
	longest := func(what string) {
		t.Helper()
		n := one[int](t, o.store,
			`select greatest((select max(greatest(octet_length(failed_reason), octet_length(last_error))) from millrace.projections),
			(select max(greatest(octet_length(error), octet_length(stack))) from millrace.dead_letters))`)
		if n > excerpt.MaxStorable || n < excerpt.MaxStorable-200 {
			t.Errorf("%s: the longest text has %d bytes", what, n)
		}
	}
	longest("a reason")
	noError(t, plane.Park(ctx, o.lease,
		projection.DeadLetter{Position: 1, Stream: "s", Version: 1, Type: "T", Error: long, Stack: long, Attempts: 1},
		false))
	noError(t, plane.Halt(ctx, o.lease, long))
	longest("a dead letter and a halt")
}
