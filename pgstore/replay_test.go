package pgstore

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// The answer to the commit of a replay may be lost, and the commit itself may happen late. It moves no checkpoint, so
// the fence does not stop the next batch of the same owner.
func TestReplayThatCommitsLateIsNotMadeTwice(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]bool{"an event": false, "a stream": true} {
		t.Run(name, func(t *testing.T) {
			d := newDrawer(t, 3)
			a, b := d.at["a"][0], d.at["b"][0]
			d.park(a, whole)
			d.park(b, false)
			command := d.give("replay", projection.DeadLetterFilter{All: true}, 10)
			r := d.begin(command, 0)
			commit := d.held(func(tx store.Tx) { control.Resolve(tx, d.lease.Row, r) })
			var again *engine.Replay
			d.must(d.within(commit, func() (err error) {
				again, err = d.plane().BeginReplay(testContext(t), d.lease,
					engine.ReplayRequest{Command: command, LastBegun: r.DeadLetter})
				return err
			}))
			if again == nil || again.Position != b {
				t.Fatalf("begun again: %+v, want position %d", again, b)
			}
			d.must(d.run(write, d.again(again)))
			if d.begin(command, 0) != nil {
				t.Error("there is more to replay")
			}
			d.mustHave(nil)
			if ended, o := d.outcome(command); !ended || o != (projection.CommandResult{Done: 2}) {
				t.Errorf("ended: %v, %+v", ended, o)
			}
		})
	}
}

func TestReplayThatCommitsLateIsNotDiscarded(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 3)
	a, b := d.at["a"][0], d.at["b"][0]
	d.park(a, true)
	d.park(b, false)
	r := d.begin(d.give("replay", projection.DeadLetterFilter{All: true}, 10), 0)
	gone := d.give("discard", projection.DeadLetterFilter{All: true}, 10)
	commit := d.held(func(tx store.Tx) { control.Resolve(tx, d.lease.Row, r) })
	d.must(d.within(commit, func() error {
		n, err := d.plane().Discard(testContext(t), d.lease, gone)
		if n != 1 {
			t.Errorf("discarded %d letters, want 1", n)
		}
		return err
	}))
	d.mustHave(nil)
	if l := d.one(a); l.State != projection.DeadLetterResolved {
		t.Errorf("%+v", l)
	}
}

// The stream was found parked before the late commit released it.
func TestStreamOfBlockedEventsStaysParked(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 3)
	a := d.at["a"]
	d.park(a[0], true)
	r := d.begin(d.give("replay", projection.DeadLetterFilter{All: true}, 10), 0)
	commit := d.held(func(tx store.Tx) { control.Resolve(tx, d.lease.Row, r) })
	d.must(d.within(commit, func() error { return d.run(write, d.batch(a[1], a[1])) }))
	d.mustHave([]int64{a[1]}, "a")
	d.replay(d.give("replay", projection.DeadLetterFilter{All: true}, 10))
	d.mustHave(nil)
}

// No node owns the lease, but a previous owner has a batch in progress.
func TestDiscardWithoutAnOwnerFencesZombies(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 4)
	a := d.at["a"]
	d.park(a[0], true)
	r := d.begin(d.give("replay", projection.DeadLetterFilter{All: true}, 10), 0)
	for name, batch := range map[string]engine.Batch{"live": d.batch(d.at["b"][0]), "behind": d.batch(a[1], a[1]),
		"replay": d.again(r)} {
		command := d.give("discard", projection.DeadLetterFilter{Stream: "none"}, 10)
		before := d.lease.Epoch
		err := d.run(writeAnd(func(context.Context, pgx.Tx) error {
			if done, err := d.plane().RunIfUnowned(testContext(t), d.lease.Row, command); !done || err != nil {
				t.Errorf("%s: carried out %v, %v", name, done, err)
			}
			return nil
		}), batch)
		if !errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("%s: the zombie's batch: %v", name, err)
		}
		if epoch := one[int64](t, d.store, "select epoch from millrace.leases"); epoch != before+1 {
			t.Errorf("%s: epoch %d, was %d", name, epoch, before)
		}
		mustExec(t, d.store, "update millrace.leases set epoch = epoch - 1")
		d.refresh()
	}
	if len(d.model()) != 0 {
		t.Errorf("the zombies applied %v", d.model())
	}
	d.mustHave(a[:1], "a")
	// While a living node holds the lease, nothing is discarded in that way. No dead letter is discarded twice.
	session := must(d.store.port().Connect(testContext(t), d.node))(t)
	command := d.give("discard", projection.DeadLetterFilter{All: true}, 10)
	if done, err := d.plane().RunIfUnowned(testContext(t), d.lease.Row, command); done || err != nil {
		t.Errorf("carried out %v, %v", done, err)
	}
	d.mustHave(a[:1], "a")
	noError(t, errors.Join(session.Deregister(testContext(t)), session.Close(testContext(t))))
	for range 2 {
		if done, err := d.plane().RunIfUnowned(testContext(t), d.lease.Row, command); !done || err != nil {
			t.Errorf("carried out %v, %v", done, err)
		}
	}
	if ended, o := d.outcome(command); !ended || o != (projection.CommandResult{Done: 1}) {
		t.Errorf("ended: %v, %+v", ended, o)
	}
	d.owner = claimAs(t, d.store, projection.DefaultTenant)
	d.mustHave(nil)
}

// connect gives the owner a session, so that it counts as alive.
func (d *drawer) connect() {
	d.t.Helper()
	session, err := d.store.port().Connect(testContext(d.t), d.node)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = session.Close(context.Background()) })
}

// The cancellation waits for the start of a replay, and then sees it.
func TestReplayThatIsBegunWhileItsCommandIsCancelled(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 1)
	at := d.at["a"][0]
	d.park(at, false)
	d.connect()
	command := d.give("replay", projection.DeadLetterFilter{All: true}, 10)
	commit := d.held(func(tx store.Tx) {
		tx.Exec("lock_command", command)
		tx.Exec("set_replaying", command, nil, at-1, d.one(at).ID)
		tx.Exec("begin_replay", d.one(at).ID, command, 0)
	})
	d.must(d.within(commit, func() error { return d.letters().Cancel(testContext(t), command) }))
	if ended, _ := d.outcome(command); ended || d.one(at).State != projection.DeadLetterReplaying {
		t.Errorf("ended: %v, %+v", ended, d.one(at))
	}
	if r := d.begin(command, 0); r != nil || d.one(at).State != projection.DeadLetterParked {
		t.Errorf("%+v, %+v", r, d.one(at))
	}
}
