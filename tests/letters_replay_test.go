package tests_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// A dead letter that crashes its process is replayed by two owners, and given up by the third.
func TestReplayIsCountedBeforeItIsMade(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 2)
		at := d.at["a"][0]
		d.park(at, false)
		command := d.give(engine.ReplayCommand, projection.DeadLetterFilter{All: true}, 10)
		for owner := 1; owner <= 3; owner++ {
			r := d.begin(command, 0)
			if r == nil || r.Position != at || r.Begun != owner || r.Deadly() != (owner == 3) ||
				d.one(at).State != projection.DeadLetterReplaying {
				t.Fatalf("the replay of owner %d: %+v", owner, r)
			}
			// An owner that begins again after its own attempt does not count it twice.
			for range 5 {
				if again := d.begin(command, r.DeadLetter); again.Begun != owner {
					t.Fatalf("begun again: %+v", again)
				}
			}
			if owner < 3 {
				d.claim()
				continue
			}
			d.must(d.Plane().FailReplay(d.Ctx, d.Lease, failedReplay(*r, projection.ErrProcessDied)))
		}
		d.mustHave([]int64{at})
		if l := d.one(at); l.State != projection.DeadLetterParked || l.Attempts != 5 || l.Replays != 1 ||
			l.Error != projection.ErrProcessDied.Error() {
			t.Errorf("%+v", l)
		}
		if r := d.begin(command, 0); r != nil {
			t.Errorf("the same command replays it again: %+v", r)
		}
		if o, ended := d.result(command); !ended || o != (projection.CommandResult{Failed: 1}) {
			t.Errorf("ended: %v, %+v", ended, o)
		}
		// The next command begins anew.
		if r := d.begin(d.give(engine.ReplayCommand, projection.DeadLetterFilter{All: true}, 10), 0); r == nil ||
			r.Begun != 1 {
			t.Errorf("%+v", r)
		}
	})
}

func TestNextOwnerContinuesACommand(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 5)
		a, b, c := d.at["a"], d.at["b"], d.at["c"]
		d.anyOrder = true
		d.must(d.run(d.write, d.batch(a[0])))
		d.park(b[0], false)
		d.park(c[0], true)
		d.park(a[1], true)
		d.must(d.run(d.write, d.batch(c[4], d.after("a", "c")...)))
		parked := slices.Concat(c, a[1:], b[:1])
		slices.Sort(parked)
		d.mustHave(parked, "a", "c")
		// Stream a is replayed whole and in order, whichever dead letter was selected. Its third replay fails. Each
		// owner makes one replay.
		command := d.give(engine.ReplayCommand,
			projection.DeadLetterFilter{IDs: []int64{d.one(a[4]).ID, d.one(b[0]).ID}}, 100)
		wants := []int64{b[0], a[1], a[2], a[3]}
		for i, at := range wants {
			for owner := 1; owner <= 2; owner++ {
				r := d.begin(command, 0)
				if r == nil || r.Position != at || r.Begun != owner {
					t.Fatalf("owner %d is given %+v, want position %d", owner, r, at)
				}
				if owner == 2 && i < 3 {
					d.must(d.run(d.write, d.again(r)))
				} else if owner == 2 {
					d.must(d.Plane().FailReplay(d.Ctx, d.Lease, failedReplay(*r, errBad)))
				}
				d.claim()
			}
		}
		if r := d.begin(command, 0); r != nil {
			t.Errorf("an event after the failed one is replayed: %+v", r)
		}
		if o, ended := d.result(command); !ended || o != (projection.CommandResult{Done: 3, Failed: 1}) {
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
			d.add("c")
		}
		command = d.give(engine.ReplayCommand, projection.DeadLetterFilter{Stream: "c"}, 6)
		if r := d.begin(command, 0); r.Position != c[0] {
			t.Errorf("%+v", r)
		}
		c = d.at["c"]
		d.must(d.run(d.write, d.batch(c[7], d.after("a", "c")...)))
		if got := d.replay(command); !slices.Equal(got, c[:6]) {
			t.Errorf("replayed %v, want %v", got, c[:6])
		}
		parked = slices.Concat(c[6:], a[3:])
		slices.Sort(parked)
		d.mustHave(parked, "a", "c")
		d.replay(d.give(engine.ReplayCommand, projection.DeadLetterFilter{All: true}, 100))
		d.mustHave(nil)
		for _, at := range [][]int64{a, c} {
			applied := slices.DeleteFunc(d.applied(), func(p int64) bool { return !slices.Contains(at, p) })
			if !slices.Equal(applied, at) {
				t.Errorf("applied %v, want %v", applied, at)
			}
		}
		if all := d.applied(); len(all) != len(d.events) {
			t.Errorf("%d events were applied, want %d", len(all), len(d.events))
		}
	})
}

// A command runs even if its caller and the lease's owner at that time are gone.
func TestCommandSurvivesItsCallerAndTheLeaseOwner(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 3)
		d.park(d.at["a"][0], true)
		for name, call := range map[string]func(context.Context, projection.DeadLetterFilter,
			int) (projection.CommandResult, error){"replay": d.letters().Replay, "discard": d.letters().Discard} {
			short, cancel := context.WithTimeout(d.Ctx, 3*time.Second)
			defer cancel()
			if o, err := call(short, projection.DeadLetterFilter{All: true}, 10); !errors.Is(err,
				projection.ErrCommandPending) || !errors.Is(err, context.DeadlineExceeded) || o.Command == 0 ||
				o.Done+o.Failed != 0 {
				t.Errorf("%s, while no node runs it: %+v, %v", name, o, err)
			}
		}
		d.claim()
		if !d.Lease.HasCommands || !d.Lease.ParkedStreams || d.Lease.Parked != 1 {
			t.Errorf("the next owner gets %+v", d.Lease)
		}
		for _, paused := range []bool{true, false} {
			queue, err := d.Plane().NextCommand(d.Ctx, d.Lease, paused)
			if err != nil || queue.Command == nil || paused && queue.Command.Replay || queue.Parked != 1 ||
				!queue.ParkedStreams {
				t.Errorf("paused: %v: it finds %+v, %v", paused, queue, err)
			}
		}
		for {
			queue, err := d.Plane().NextCommand(d.Ctx, d.Lease, false)
			if err != nil {
				t.Fatal(err)
			}
			if queue.Command == nil {
				break
			}
			if queue.Command.Replay {
				d.replay(queue.Command.ID)
			} else if _, err := d.Plane().Discard(d.Ctx, d.Lease, queue.Command.ID); err != nil {
				t.Fatal(err)
			}
		}
		d.mustHave(nil)
	})
}

func TestAutomaticReplaysMayHaveAnyLimit(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 1)
		d.park(d.at["a"][0], false)
		d.Must(d.Store.Age(d.Ctx, time.Hour))
		for _, most := range []int{math.MaxInt, projection.NoLimit} {
			policy := engine.Policy{Replay: projection.ReplayPolicy{Interval: time.Minute,
				MaxReplays: most}}.WithDefaults().Replay
			if scheduled, _, err := d.Plane().ScheduleReplay(d.Ctx, d.Lease, policy, false); err != nil || !scheduled {
				t.Errorf("at most %d: scheduled %v, %v", most, scheduled, err)
			}
			queue, err := d.Plane().NextCommand(d.Ctx, d.Lease, false)
			d.Must(err)
			d.Must(d.letters().Cancel(d.Ctx, queue.Command.ID))
		}
	})
}

func TestAutomaticReplaysTakeOnlyDueDeadLetters(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 4)
		a, b, c := d.at["a"], d.at["b"], d.at["c"]
		d.anyOrder = true
		policy := engine.Policy{Replay: projection.ReplayPolicy{Interval: time.Minute,
			MaxReplays: 2}}.WithDefaults().Replay
		schedule := func() (due int64) {
			t.Helper()
			scheduled, _, err := d.Plane().ScheduleReplay(d.Ctx, d.Lease, policy, d.anyOrder)
			if err != nil {
				t.Fatal(err)
			}
			if !scheduled {
				return 0
			}
			queue, err := d.Plane().NextCommand(d.Ctx, d.Lease, false)
			if err != nil || queue.Command == nil {
				t.Fatal("nothing to do: ", err)
			}
			return d.begin(queue.Command.ID, 0).Position
		}
		older := func(by time.Duration) {
			t.Helper()
			d.Must(d.Store.Age(d.Ctx, by))
		}
		next := func(poison ...int64) []int64 {
			t.Helper()
			queue, err := d.Plane().NextCommand(d.Ctx, d.Lease, false)
			if err != nil || queue.Command == nil {
				t.Fatal("nothing to do: ", err)
			}
			return d.replay(queue.Command.ID, poison...)
		}
		// a[0] is parked alone, and later its stream with a[1]: the earlier position is replayed first.
		d.park(a[0], false)
		d.park(b[0], false)
		d.must(d.run(d.write, d.batch(c[0])))
		d.park(a[1], true)
		d.must(d.run(d.write, d.batch(c[3], a[2], a[3])))
		if due := schedule(); due != 0 {
			t.Errorf("position %d is due at once", due)
		}
		older(61 * time.Second)
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
		older(61 * time.Second)
		if due := schedule(); due != 0 {
			t.Errorf("position %d is due after one interval, and it was replayed before", due)
		}
		older(time.Minute)
		for _, want := range []int64{a[0], b[0], 0} {
			if due := schedule(); due != want {
				t.Errorf("position %d is due, want %d", due, want)
			}
			if want != 0 {
				next(want)
			}
		}
		older(24 * time.Hour)
		if due := schedule(); due != 0 {
			t.Errorf("position %d was replayed as often as it may be", due)
		}
		policy.MaxReplays, policy.Error = -1, "of no letter"
		if due := schedule(); due != 0 {
			t.Errorf("position %d is due, and has another error", due)
		}
		// If a command replays a stream up to its limit, the automatic replayer continues the stream.
		policy.Error = ""
		d.replay(d.give(engine.ReplayCommand, projection.DeadLetterFilter{Stream: "a"}, 2))
		older(24 * time.Hour)
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
		applied := d.applied()
		slices.Sort(all)
		slices.Sort(applied)
		if !slices.Equal(applied, all) {
			t.Errorf("applied %v, want %v", applied, all)
		}
	})
}

// A replay is one transaction: its writes, the dead letter, the counters and the stream change together or not at all.
func TestReplayAndItsDeadLetterAreOneTransaction(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 2)
		d.park(d.at["a"][0], true)
		command := d.give(engine.ReplayCommand, projection.DeadLetterFilter{All: true}, 10)
		r := d.begin(command, 0)
		d.Must(d.Store.Quarantine(d.Ctx))
		before := d.state()
		writeAnd := func(fail func(ctx context.Context, tx kit.Tx) error) kit.BatchFunc {
			return func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
				return errors.Join(d.write(ctx, tx, events), fail(ctx, tx))
			}
		}
		for name, fail := range map[string]kit.BatchFunc{
			"error":      writeAnd(func(context.Context, kit.Tx) error { return errBad }),
			"panic":      writeAnd(func(context.Context, kit.Tx) error { panic(errBad) }),
			"SQL":        writeAnd(k.Kind.Faults["SQL error"].Fail),
			"constraint": writeAnd(k.Kind.Faults["constraint"].Fail),
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
		stale := d.Lease
		stale.Checkpoint--
		for name, write := range map[string]func() error{
			"old checkpoint": func() error { return d.runAs(stale, d.write, behind) },
			"another letter": func() error {
				return d.run(d.write, engine.Batch{Events: []event.Envelope{d.events[2]},
					To: d.Lease.Checkpoint, Replay: &engine.Replay{Command: command, DeadLetter: r.DeadLetter + 1}})
			},
		} {
			if err := write(); !errors.Is(err, projection.ErrLeaseLost) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if after := d.state(); after != before {
			t.Errorf("it was\n%s\nand is\n%s", before, after)
		}
		d.must(d.run(d.write, d.again(r)))
		d.mustHave(nil)
		if d.Lease.CrashCount != 3 {
			t.Error("the replay changed the crash count of the lease")
		}
		if err := d.run(d.write, d.again(r)); !errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("once more: %v", err)
		}
		if n := len(d.applied()); n != 1 {
			t.Errorf("applied %d times", n)
		}
	})
}

// The command of a replay that began and did not end is cancelled.
func TestCancelledReplayLeavesNoDeadLetterReplaying(t *testing.T) {
	for name, whole := range map[string]bool{"of an event": false, "of a stream": true} {
		t.Run(name, func(t *testing.T) {
			kit.Run(t, func(t *testing.T, k *kit.Bundle) {
				d := newDrawer(k, 3)
				cancel := func(command int64) {
					t.Helper()
					d.must(d.letters().Cancel(d.Ctx, command))
				}
				a := d.at["a"]
				d.park(a[0], whole)
				if whole {
					d.must(d.run(d.write, d.batch(a[2], a[1:]...)))
				}
				parked := positionsOf(d.list(projection.DeadLetterPage{}))
				var streams []string
				if whole {
					streams = []string{"a"}
				}
				mustBeParked := func(command int64, doing string) {
					t.Helper()
					o, ended := d.result(command)
					for i, l := range d.list(projection.DeadLetterPage{}) {
						if !ended || o != (projection.CommandResult{}) || l.State != projection.DeadLetterParked ||
							i == 0 && l.BlockedByStream {
							t.Errorf("%s: ended %v, %+v, %+v", doing, ended, o, l)
						}
					}
					d.mustHave(parked, streams...)
				}
				carriedOut := func() (command int64) {
					t.Helper()
					queue, err := d.Plane().NextCommand(d.Ctx, d.Lease, true) // also while no handler may be called
					if err != nil || queue.Command == nil || !queue.Command.Replay {
						t.Fatalf("to be done: %+v, %v", queue.Command, err)
					}
					if r := d.begin(queue.Command.ID, 0); r != nil {
						t.Errorf("it is replayed: %+v", r)
					}
					return queue.Command.ID
				}
				// The command is ended by the owner of the lease, which is alive.
				command := d.give(engine.ReplayCommand, projection.DeadLetterFilter{All: true}, 10)
				d.begin(command, 0)
				cancel(command)
				carriedOut()
				mustBeParked(command, "its owner lives")
				// The command is ended by the next owner, after a death before or after the cancellation.
				for _, before := range []bool{true, false} {
					command = d.give(engine.ReplayCommand, projection.DeadLetterFilter{All: true}, 10)
					if r := d.begin(command, 0); r.Begun != 1 {
						t.Errorf("%+v", r)
					}
					if !before {
						cancel(command)
					}
					d.claim()
					if before {
						cancel(command)
					}
					if !d.Lease.HasCommands {
						t.Error("the next owner is not notified of it")
					}
					carriedOut()
					mustBeParked(command, "its owner died")
				}
				// A replay in progress finishes, and no other begins.
				command = d.give(engine.ReplayCommand, projection.DeadLetterFilter{All: true}, 10)
				r := d.begin(command, 0)
				cancel(command)
				d.must(d.run(d.write, d.again(r)))
				carriedOut()
				if o, ended := d.result(command); !ended || o != (projection.CommandResult{Done: 1}) {
					t.Errorf("ended: %v, %+v", ended, o)
				}
				parked = parked[1:]
				if whole {
					// If no node holds the lease any more, the command ends at once.
					command = d.give(engine.ReplayCommand, projection.DeadLetterFilter{All: true}, 10)
					d.begin(command, 0)
					d.End()
					d.Must(d.letters().Cancel(d.Ctx, command))
					mustBeParked(command, "no node holds the lease")
				}
			})
		})
	}
}
