package pgstore

import (
	"context"
	"testing"

	"github.com/millrace-go/millrace/projection"
)

// A replay was begun and came to nothing, when its command is cancelled.
func TestCancelledReplayLeavesNoLetterReplaying(t *testing.T) {
	t.Parallel()
	cancel := func(d *drawer, command int64) {
		d.t.Helper()
		d.must(d.letters().Cancel(testContext(d.t), command))
	}
	for name, whole := range map[string]bool{"of an event": false, "of a stream": true} {
		t.Run(name, func(t *testing.T) {
			d := newDrawer(t, 3)
			a := d.at["a"]
			d.park(a[0], whole)
			if whole {
				d.must(d.run(write, d.batch(a[2], a[1:]...)))
			}
			d.connect()
			parked := d.parked()
			mustBeParked := func(command int64, doing string) {
				t.Helper()
				ended, o := d.outcome(command)
				for i, l := range d.list(projection.DeadLetterPage{}) {
					if !ended || o != (projection.CommandResult{}) || l.State != projection.DeadLetterParked || i == 0 && l.BlockedByStream {
						t.Errorf("%s: ended %v, %+v, %+v", doing, ended, o, l)
					}
				}
				d.mustHave(parked, streamsOf(whole)...)
			}
			carriedOut := func() (command int64) {
				t.Helper()
				desk, err := d.port().NextCommand(testContext(t), d.lease, true) // also while no handler may be called
				if err != nil || desk.Command == nil || !desk.Command.Replay {
					t.Fatalf("to be done: %+v, %v", desk.Command, err)
				}
				if r := d.begin(desk.Command.ID, 0); r != nil {
					t.Errorf("it is replayed: %+v", r)
				}
				return desk.Command.ID
			}
			// By its owner, which lives.
			command := d.give("replay", projection.DeadLetterFilter{All: true}, 10)
			d.begin(command, 0)
			cancel(d, command)
			carriedOut()
			mustBeParked(command, "its owner lives")
			// By the next owner, after a death before and after it was cancelled.
			for _, before := range []bool{true, false} {
				command = d.give("replay", projection.DeadLetterFilter{All: true}, 10)
				if r := d.begin(command, 0); r.Begun != 1 {
					t.Errorf("%+v", r)
				}
				if !before {
					cancel(d, command)
				}
				mustExec(t, d.store, "delete from millrace.nodes")
				d.owner = claimAs(t, d.store, projection.DefaultTenant)
				d.connect()
				if before {
					cancel(d, command)
				}
				if !d.lease.HasCommands {
					t.Error("the next owner does not learn of it")
				}
				carriedOut()
				mustBeParked(command, "its owner died")
			}
			// One that is under way is finished, and nothing after it.
			command = d.give("replay", projection.DeadLetterFilter{All: true}, 10)
			r := d.begin(command, 0)
			cancel(d, command)
			d.must(d.run(write, d.again(r)))
			carriedOut()
			if ended, o := d.outcome(command); !ended || o != (projection.CommandResult{Done: 1}) {
				t.Errorf("ended: %v, %+v", ended, o)
			}
			if parked = parked[1:]; whole {
				// Where no node holds the lease any more, at once.
				command = d.give("replay", projection.DeadLetterFilter{All: true}, 10)
				d.begin(command, 0)
				mustExec(t, d.store, "delete from millrace.nodes")
				noError(t, d.letters().Cancel(testContext(t), command))
				mustBeParked(command, "no node holds the lease")
			}
		})
	}
}

// connect makes the owner one that is alive.
func (d *drawer) connect() {
	d.t.Helper()
	session, err := d.port().Connect(testContext(d.t), d.node)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = session.Close(context.Background()) })
}

func streamsOf(whole bool) []string {
	if whole {
		return []string{"a"}
	}
	return nil
}

// The cancellation waits for a replay that is just being begun, and knows of it then.
func TestReplayThatIsBegunWhileItsCommandIsCancelled(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 1)
	at := d.at["a"][0]
	d.park(at, false)
	d.connect()
	command := d.give("replay", projection.DeadLetterFilter{All: true}, 10)
	commit := d.held(d.store.control.sql("begin_replay"), d.lease.Row, d.lease.Owner, d.lease.Epoch, command, 0)
	d.must(d.within(commit, func() error { return d.letters().Cancel(testContext(t), command) }))
	if ended, _ := d.outcome(command); ended || d.one(at).State != projection.DeadLetterReplaying {
		t.Errorf("ended: %v, %+v", ended, d.one(at))
	}
	if r := d.begin(command, 0); r != nil || d.one(at).State != projection.DeadLetterParked {
		t.Errorf("%+v, %+v", r, d.one(at))
	}
}
