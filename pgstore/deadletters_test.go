package pgstore

import (
	"errors"
	"testing"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// The fence is checked in the message that begins the transaction, and holds the lease until the commit.
func TestReplayIsBegunUnderTheLease(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 2)
	d.park(d.at["a"][0], false)
	command := d.give("replay", projection.DeadLetterFilter{All: true}, 10)
	lost := d.lease
	d.owner = claimAs(t, d.store, projection.DefaultTenant)
	before := d.state()
	if _, err := d.plane().BeginReplay(testContext(t), lost, engine.ReplayRequest{Command: command}); !errors.Is(err,
		projection.ErrLeaseLost) || d.state() != before {
		t.Errorf("under a lost lease: %v, and it was\n%s\nand is\n%s", err, before, d.state())
	}
	if d.begin(command, 0) == nil || d.state() == before {
		t.Error("under the lease nothing began")
	}
}

// Changes of a handler to its session do not affect the statements of the store in its batch.
func TestBlockedEventsAreParkedWhateverTheHandlerDoesToItsSession(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"set local role letters_stranger", "do $$ begin set role letters_stranger; end $$",
		"set local search_path = nowhere", "do $$ begin set search_path = nowhere, pg_temp; end $$",
		"create temporary table dead_letters (id int)", "create temporary table parked_streams (id int)",
		"set local plan_cache_mode = force_generic_plan", "set local default_transaction_read_only = on",
		"set local session_replication_role = replica",
		"set local timezone = 'Asia/Tokyo'; set local datestyle = 'German'; set local standard_conforming_strings = on",
		"savepoint a",
	} {
		t.Run(sql, func(t *testing.T) {
			d := newDrawer(t, 3)
			// A pool of one connection, so that each batch meets what the last one left.
			d.store = openStore(t, d.store.pool.Config().ConnString(), Options{}, connections(1))
			mustExec(t, d.store,
				"drop role if exists letters_stranger; create role letters_stranger; grant all on public.model to letters_stranger")
			t.Cleanup(func() { mustExec(t, d.store, "drop owned by letters_stranger; drop role letters_stranger") })
			a := d.at["a"]
			d.park(a[0], true)
			for _, at := range a[1:] {
				noError(t, d.run(writesAndSends(sql), d.batch(at, at)))
				d.refresh()
			}
			d.mustHave(a, "a")
			command := d.give("replay", projection.DeadLetterFilter{All: true}, 10)
			for range a {
				noError(t, d.run(writesAndSends(sql), d.again(d.begin(command, 0))))
			}
			d.mustHave(nil)
		})
	}
}
