package pgstore

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// setBack sets the checkpoint back by hand, as an operator does to apply events again.
func (d *drawer) setBack(to int64) {
	d.t.Helper()
	mustExec(d.t, d.store, "update millrace.leases set checkpoint = $1 where id = $2", to, d.lease.Row)
	d.refresh()
}

// An event that is parked, or was, is parked again in one go where the checkpoint was set back over it.
func TestEventIsParkedAgainWhereTheCheckpointWasSetBack(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(d *drawer, at int64){
		"parked": func(*drawer, int64) {},
		"resolved": func(d *drawer, _ int64) {
			d.replay(d.give("replay", projection.DeadLetterFilter{All: true}, 10))
		},
		"discarded": func(d *drawer, _ int64) {
			_, err := d.port().Discard(testContext(d.t), d.lease, d.give("discard", projection.DeadLetterFilter{All: true}, 10))
			d.must(err)
		},
		"being replayed": func(d *drawer, _ int64) { d.begin(d.give("replay", projection.DeadLetterFilter{All: true}, 10), 0) },
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
				before(d, at)
				for range 2 {
					d.setBack(at - 1)
					d.park(at, stream)
					d.mustHave([]int64{at}, streams...)
					if l := d.one(at); l.State != projection.DeadLetterParked || l.BlockedByStream || l.Attempts != 4 || l.Replays != 0 || !l.EndedAt.IsZero() || d.lease.Checkpoint != at {
						t.Errorf("%+v at checkpoint %d", l, d.lease.Checkpoint)
					}
				}
				// A replay of it that was under way resolves nothing, and the parked event can be replayed.
				d.replay(d.give("replay", projection.DeadLetterFilter{All: true}, 10))
				d.mustHave(nil)
			})
		}
	}
}

// A parked stream stays as it is, with the event that failed at its head, where the checkpoint was set back over it.
func TestParkedStreamStaysAsItIsWhereTheCheckpointWasSetBack(t *testing.T) {
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
	// What was discarded comes back as the head, and waits for no other.
	_, err := d.port().Discard(testContext(t), d.lease, d.give("discard", projection.DeadLetterFilter{IDs: []int64{head.ID}}, 1))
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

// A replay under way finds its letter parked anew: it applies nothing.
func TestReplayOfALetterThatWasParkedAgainAppliesNothing(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 2)
	at := d.at["a"][0]
	d.park(at, false)
	r := d.begin(d.give("replay", projection.DeadLetterFilter{All: true}, 10), 0)
	before := len(d.model())
	err := d.run(writeAnd(func(context.Context, pgx.Tx) error {
		// Another connection of the same owner, whose batch was cut off and comes late.
		other := &drawer{owner: &owner{t: d.t, store: d.store, node: d.node, lease: d.lease}, at: d.at, events: d.events}
		other.setBack(at - 1)
		other.park(at, false)
		return nil
	}), d.again(r))
	wantClass(t, err, engine.LeaseLost)
	d.refresh()
	d.mustHave([]int64{at})
	if n := len(d.model()); n != before {
		t.Errorf("%d events more were applied", n-before)
	}
}
