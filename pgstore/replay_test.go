package pgstore

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// A dead letter that crashes its process is replayed by two owners, and given up by the third.
func TestReplayIsCountedBeforeItIsMade(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 2)
	at := d.at["a"][0]
	d.park(at, false)
	command := d.give("replay", projection.DeadLetterFilter{All: true}, 10)
	for owner := 1; owner <= 3; owner++ {
		r := d.begin(command, 0)
		if r == nil || r.Position != at || r.Begun != owner || r.Deadly() != (owner == 3) || d.one(at).State != projection.DeadLetterReplaying {
			t.Fatalf("the replay of owner %d: %+v", owner, r)
		}
		// An owner that begins again after its own attempt does not count it twice.
		for range 5 {
			if again := d.begin(command, r.DeadLetter); again.Begun != owner {
				t.Fatalf("begun again: %+v", again)
			}
		}
		if owner < 3 {
			d.owner = claimAs(t, d.store, projection.DefaultTenant)
			continue
		}
		d.must(d.port().FailReplay(testContext(t), d.lease, failedReplay(*r, projection.ErrProcessDied, "a\x00b")))
	}
	d.mustHave([]int64{at})
	if l := d.one(at); l.State != projection.DeadLetterParked || l.Attempts != 5 || l.Replays != 1 || l.Error != projection.ErrProcessDied.Error() {
		t.Errorf("%+v", l)
	}
	if r := d.begin(command, 0); r != nil {
		t.Errorf("the same command replays it again: %+v", r)
	}
	if ended, o := d.outcome(command); !ended || o != (projection.CommandResult{Failed: 1}) {
		t.Errorf("ended: %v, %+v", ended, o)
	}
	// The next command begins anew.
	if r := d.begin(d.give("replay", projection.DeadLetterFilter{All: true}, 10), 0); r == nil || r.Begun != 1 {
		t.Errorf("%+v", r)
	}
}

func TestNextOwnerContinuesACommand(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 5)
	a, b, c := d.at["a"], d.at["b"], d.at["c"]
	d.must(d.run(write, d.batch(a[0])))
	d.park(b[0], false)
	d.park(c[0], true)
	d.park(a[1], true)
	d.must(d.run(write, d.batch(c[4], d.behind("a", "c")...)))
	parked := slices.Concat(c, a[1:], b[:1])
	slices.Sort(parked)
	d.mustHave(parked, "a", "c")
	// Stream a is replayed whole and in order, whichever dead letter was selected. Its third replay fails. Each owner
	// makes one replay.
	command := d.give("replay", projection.DeadLetterFilter{IDs: []int64{d.one(a[4]).ID, d.one(b[0]).ID}}, 100)
	wants := []int64{b[0], a[1], a[2], a[3]}
	for i, at := range wants {
		for owner := 1; owner <= 2; owner++ {
			r := d.begin(command, 0)
			if r == nil || r.Position != at || r.Begun != owner {
				t.Fatalf("owner %d is given %+v, want position %d", owner, r, at)
			}
			if owner == 2 && i < 3 {
				d.must(d.run(write, d.again(r)))
			} else if owner == 2 {
				d.must(d.port().FailReplay(testContext(t), d.lease, failedReplay(*r, errBad, "")))
			}
			d.owner = claimAs(t, d.store, projection.DefaultTenant)
		}
	}
	if r := d.begin(command, 0); r != nil {
		t.Errorf("behind the one that failed: %+v", r)
	}
	if ended, o := d.outcome(command); !ended || o != (projection.CommandResult{Done: 3, Failed: 1}) {
		t.Errorf("ended: %v, %+v", ended, o)
	}
	parked = slices.Concat(c, a[3:])
	slices.Sort(parked)
	d.mustHave(parked, "a", "c")
	if l := d.one(a[3]); l.BlockedByStream || l.Attempts != 1 || l.Error != "bad" {
		t.Errorf("%+v", l)
	}
	// Live events of a parked stream are parked too, and replayed with it. A limit ends the replay in the middle.
	for range 3 {
		d.append("c")
	}
	command = d.give("replay", projection.DeadLetterFilter{Stream: "c"}, 6)
	if r := d.begin(command, 0); r.Position != c[0] {
		t.Errorf("%+v", r)
	}
	c = d.at["c"]
	d.must(d.run(write, d.batch(c[7], d.behind("a", "c")...)))
	if got := d.replay(command); !slices.Equal(got, c[:6]) {
		t.Errorf("replayed %v, want %v", got, c[:6])
	}
	parked = slices.Concat(c[6:], a[3:])
	slices.Sort(parked)
	d.mustHave(parked, "a", "c")
	d.replay(d.give("replay", projection.DeadLetterFilter{All: true}, 100))
	d.mustHave(nil)
	for _, at := range [][]int64{a, c} {
		applied := slices.DeleteFunc(d.model(), func(p int64) bool { return !slices.Contains(at, p) })
		if !slices.Equal(applied, at) {
			t.Errorf("applied %v, want %v", applied, at)
		}
	}
	if all := d.model(); len(all) != len(d.events) {
		t.Errorf("%d events were applied, want %d", len(all), len(d.events))
	}
}

// behind returns the positions of these streams after the checkpoint.
func (d *drawer) behind(streams ...string) (positions []int64) {
	for _, s := range streams {
		for _, p := range d.at[s] {
			if p > d.lease.Checkpoint {
				positions = append(positions, p)
			}
		}
	}
	return positions
}

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
			commit := d.held(d.store.control.sql("resolve_dead_letter"), d.lease.Row, r.DeadLetter, r.Command)
			var again *engine.Replay
			d.must(d.within(commit, func() (err error) {
				again, err = d.port().BeginReplay(testContext(t), d.lease, command, r.DeadLetter)
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
	commit := d.held(d.store.control.sql("resolve_dead_letter"), d.lease.Row, r.DeadLetter, r.Command)
	d.must(d.within(commit, func() error {
		n, err := d.port().Discard(testContext(t), d.lease, gone)
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
	commit := d.held(d.store.control.sql("resolve_dead_letter"), d.lease.Row, r.DeadLetter, r.Command)
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
	for name, batch := range map[string]engine.Batch{"live": d.batch(d.at["b"][0]), "behind": d.batch(a[1], a[1]), "replay": d.again(r)} {
		command := d.give("discard", projection.DeadLetterFilter{Stream: "none"}, 10)
		before := d.lease.Epoch
		err := d.run(writeAnd(func(context.Context, pgx.Tx) error {
			if done, err := d.store.runUnowned(testContext(t), d.lease.Row, command); !done || err != nil {
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
	session := must(d.port().Connect(testContext(t), d.node))(t)
	command := d.give("discard", projection.DeadLetterFilter{All: true}, 10)
	if done, err := d.store.runUnowned(testContext(t), d.lease.Row, command); done || err != nil {
		t.Errorf("carried out %v, %v", done, err)
	}
	d.mustHave(a[:1], "a")
	noError(t, errors.Join(session.Deregister(testContext(t)), session.Close(testContext(t))))
	for range 2 {
		if done, err := d.store.runUnowned(testContext(t), d.lease.Row, command); !done || err != nil {
			t.Errorf("carried out %v, %v", done, err)
		}
	}
	if ended, o := d.outcome(command); !ended || o != (projection.CommandResult{Done: 1}) {
		t.Errorf("ended: %v, %+v", ended, o)
	}
	d.owner = claimAs(t, d.store, projection.DefaultTenant)
	d.mustHave(nil)
}

// A command runs even if its caller and the lease's owner at that time are gone.
func TestCommandSurvivesItsCallerAndTheLeaseOwner(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 3)
	d.park(d.at["a"][0], true)
	session := must(d.port().Connect(testContext(t), d.node))(t)
	for name, call := range map[string]func(context.Context, projection.DeadLetterFilter, int) (projection.CommandResult, error){"replay": d.letters().Replay, "discard": d.letters().Discard} {
		short, cancel := context.WithTimeout(testContext(t), 3*time.Second)
		defer cancel()
		if o, err := call(short, projection.DeadLetterFilter{All: true}, 10); !errors.Is(err, projection.ErrCommandPending) || !errors.Is(err, context.DeadlineExceeded) || o.Command == 0 || o.Done+o.Failed != 0 {
			t.Errorf("%s, while no node runs it: %+v, %v", name, o, err)
		}
	}
	noError(t, errors.Join(session.Deregister(testContext(t)), session.Close(testContext(t))))
	d.owner = claimAs(t, d.store, projection.DefaultTenant)
	if !d.lease.HasCommands || !d.lease.ParkedStreams || d.lease.Parked != 1 {
		t.Errorf("the next owner gets %+v", d.lease)
	}
	for _, paused := range []bool{true, false} {
		queue, err := d.port().NextCommand(testContext(t), d.lease, paused)
		if err != nil || queue.Command == nil || paused && queue.Command.Replay || queue.Parked != 1 || !queue.ParkedStreams {
			t.Errorf("paused: %v: it finds %+v, %v", paused, queue, err)
		}
	}
	for {
		queue, err := d.port().NextCommand(testContext(t), d.lease, false)
		if err != nil {
			t.Fatal(err)
		}
		if queue.Command == nil {
			break
		}
		if queue.Command.Replay {
			d.replay(queue.Command.ID)
		} else if _, err := d.port().Discard(testContext(t), d.lease, queue.Command.ID); err != nil {
			t.Fatal(err)
		}
	}
	d.mustHave(nil)
}

func TestAutomaticReplaysMayHaveAnyLimit(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 1)
	d.park(d.at["a"][0], false)
	mustExec(t, d.store, "update millrace.dead_letters set last_failed_at = last_failed_at - interval '1 hour'")
	for _, most := range []int{math.MaxInt, projection.NoLimit} {
		policy := engine.Policy{Replay: projection.ReplayPolicy{Interval: time.Minute, MaxReplays: most}}.WithDefaults().Replay
		if scheduled, _, err := d.port().ScheduleReplay(testContext(t), d.lease, policy); err != nil || !scheduled {
			t.Errorf("at most %d: scheduled %v, %v", most, scheduled, err)
		}
		mustExec(t, d.store, "update millrace.commands set ended_at = now()")
	}
}

func TestAutomaticReplaysTakeOnlyDueDeadLetters(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 4)
	a, b, c := d.at["a"], d.at["b"], d.at["c"]
	policy := engine.Policy{Replay: projection.ReplayPolicy{Interval: time.Minute, MaxReplays: 2}}.WithDefaults().Replay
	schedule := func() (due int64) {
		t.Helper()
		scheduled, _, err := d.port().ScheduleReplay(testContext(t), d.lease, policy)
		if err != nil {
			t.Fatal(err)
		}
		if !scheduled {
			return 0
		}
		return one[int64](t, d.store, "select d.position from millrace.commands c join millrace.dead_letters d on d.id = c.dead_letter_ids[1] where c.ended_at is null")
	}
	older := func(by string) {
		t.Helper()
		mustExec(t, d.store, "update millrace.dead_letters set last_failed_at = last_failed_at - $1::interval", by)
	}
	next := func(poison ...int64) []int64 {
		t.Helper()
		queue, err := d.port().NextCommand(testContext(t), d.lease, false)
		if err != nil || queue.Command == nil {
			t.Fatal("nothing to do: ", err)
		}
		return d.replay(queue.Command.ID, poison...)
	}
	// a[0] is parked alone, and later its stream with a[1]: the earlier position is replayed first.
	d.park(a[0], false)
	d.park(b[0], false)
	d.must(d.run(write, d.batch(c[0])))
	d.park(a[1], true)
	d.must(d.run(write, d.batch(c[3], a[2], a[3])))
	if due := schedule(); due != 0 {
		t.Errorf("position %d is due at once", due)
	}
	older("61 seconds")
	if due := schedule(); due != a[0] {
		t.Errorf("position %d is due, want %d", due, a[0])
	}
	if due := schedule(); due != 0 {
		t.Errorf("position %d is due while another is being replayed", due)
	}
	next(a[0])
	// The stream does not continue without its first dead letter, however long the others have been waiting.
	if due := schedule(); due != b[0] {
		t.Errorf("position %d is due, want %d", due, b[0])
	}
	next(b[0])
	if due := schedule(); due != 0 {
		t.Errorf("position %d is due, and its stream waits for its first", due)
	}
	// The interval grows, and ends.
	older("61 seconds")
	if due := schedule(); due != 0 {
		t.Errorf("position %d is due after one interval, and it was replayed before", due)
	}
	older("60 seconds")
	for _, want := range []int64{a[0], b[0], 0} {
		if due := schedule(); due != want {
			t.Errorf("position %d is due, want %d", due, want)
		}
		if want != 0 {
			next(want)
		}
	}
	older("1 day")
	if due := schedule(); due != 0 {
		t.Errorf("position %d was replayed as often as it may be", due)
	}
	policy.MaxReplays, policy.Error = -1, "of no letter"
	if due := schedule(); due != 0 {
		t.Errorf("position %d is due, and has another error", due)
	}
	// If a command replays a stream up to its limit, the automatic replayer continues the stream.
	policy.Error = ""
	d.replay(d.give("replay", projection.DeadLetterFilter{Stream: "a"}, 2))
	older("1 day")
	for _, want := range []int64{a[2], b[0]} { // which has an interval as long as two replays made it
		if due := schedule(); due != want {
			t.Errorf("position %d is due, want %d", due, want)
		}
		next()
	}
	d.mustHave(nil)
	var all []int64
	for p := range d.events {
		all = append(all, p)
	}
	applied := d.model()
	slices.Sort(all)
	if slices.Sort(applied); !slices.Equal(applied, all) {
		t.Errorf("applied %v, want %v", applied, all)
	}
}

// A replay is one transaction: its writes, the dead letter, the counters and the stream change together or not at all.
func TestReplayAndItsDeadLetterAreOneTransaction(t *testing.T) {
	t.Parallel()
	d := newDrawer(t, 2)
	d.park(d.at["a"][0], true)
	command := d.give("replay", projection.DeadLetterFilter{All: true}, 10)
	r := d.begin(command, 0)
	mustExec(t, d.store, "update millrace.leases set crash_count = 2")
	before := d.state()
	for name, fail := range map[string]batchFunc{
		"error": writeAnd(func(context.Context, pgx.Tx) error { return errBad }),
		"panic": writeAnd(func(context.Context, pgx.Tx) error { panic(errBad) }),
		"SQL":   writesAndSends("select 1/0"),
		"lost":  writesAndSends("select pg_terminate_backend(pg_backend_pid())"),
	} {
		if err := d.run(fail, d.again(r)); err == nil {
			t.Errorf("%s: no error", name)
		}
		if after := d.state(); after != before {
			t.Errorf("%s: it was\n%s\nand is\n%s", name, before, after)
		}
	}
	// The checkpoint has moved, or the dead letter is not being replayed.
	behind := d.again(r)
	behind.To--
	stale := d.lease
	stale.Checkpoint--
	for name, write := range map[string]func() error{
		"old checkpoint": func() error { return d.port().apply(write, engine.ApplyOptions{})(testContext(t), stale, behind) },
		"another letter": func() error {
			return d.run(write, engine.Batch{Events: []event.Envelope{d.events[2]}, To: d.lease.Checkpoint, Replay: &engine.Replay{Command: command, DeadLetter: r.DeadLetter + 1}})
		},
	} {
		if err := write(); !errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := d.state(); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	d.must(d.run(write, d.again(r)))
	d.mustHave(nil)
	if d.lease.CrashCount != 2 {
		t.Error("it says something about the events that are behind the checkpoint")
	}
	if err := d.run(write, d.again(r)); !errors.Is(err, projection.ErrLeaseLost) {
		t.Errorf("once more: %v", err)
	}
	if n := d.written(); n != 1 {
		t.Errorf("applied %d times", n)
	}
}

// The command of a replay that began and did not end is cancelled.
func TestCancelledReplayLeavesNoDeadLetterReplaying(t *testing.T) {
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
				queue, err := d.port().NextCommand(testContext(t), d.lease, true) // also while no handler may be called
				if err != nil || queue.Command == nil || !queue.Command.Replay {
					t.Fatalf("to be done: %+v, %v", queue.Command, err)
				}
				if r := d.begin(queue.Command.ID, 0); r != nil {
					t.Errorf("it is replayed: %+v", r)
				}
				return queue.Command.ID
			}
			// The command is ended by the owner of the lease, which is alive.
			command := d.give("replay", projection.DeadLetterFilter{All: true}, 10)
			d.begin(command, 0)
			cancel(d, command)
			carriedOut()
			mustBeParked(command, "its owner lives")
			// The command is ended by the next owner, after a death before or after the cancellation.
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
			// A replay in progress finishes, and no other begins.
			command = d.give("replay", projection.DeadLetterFilter{All: true}, 10)
			r := d.begin(command, 0)
			cancel(d, command)
			d.must(d.run(write, d.again(r)))
			carriedOut()
			if ended, o := d.outcome(command); !ended || o != (projection.CommandResult{Done: 1}) {
				t.Errorf("ended: %v, %+v", ended, o)
			}
			if parked = parked[1:]; whole {
				// If no node holds the lease any more, the command ends at once.
				command = d.give("replay", projection.DeadLetterFilter{All: true}, 10)
				d.begin(command, 0)
				mustExec(t, d.store, "delete from millrace.nodes")
				noError(t, d.letters().Cancel(testContext(t), command))
				mustBeParked(command, "no node holds the lease")
			}
		})
	}
}

// connect gives the owner a session, so that it counts as alive.
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

// The cancellation waits for the start of a replay, and then sees it.
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
