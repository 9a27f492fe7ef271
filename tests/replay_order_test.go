package tests_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/deadletters"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// everything is the filter of all dead letters.
var everything = projection.DeadLetterFilter{All: true}

// ordered runs a replay of dead letters as the projection of the request does, and returns what it applied and its
// result.
func (d *drawer) ordered(filter projection.DeadLetterFilter,
	request engine.ReplayRequest) (applied []int64, result projection.CommandResult, err error) {
	d.T.Helper()
	request.Command = d.give(engine.ReplayCommand, filter, 100)
	return d.carryOut(request)
}

// carryOut is ordered for a command that exists.
func (d *drawer) carryOut(request engine.ReplayRequest) (applied []int64, result projection.CommandResult, err error) {
	d.T.Helper()
	for steps := 1; ; steps++ {
		r, err := d.Plane().BeginReplay(d.Ctx, d.Lease, request)
		d.Must(err)
		if r == nil {
			break
		}
		if steps > 100 {
			d.T.Fatalf("the replay does not end: %+v", r)
		}
		if r.OutOfOrder {
			continue
		}
		d.must(d.run(d.write, d.again(r)))
		applied = append(applied, r.Position)
	}
	result, err = d.letters().Wait(d.Ctx, request.Command)
	result.Command = 0
	return applied, result, err
}

func TestReplayIsRefusedAfterLaterEventsOfItsStream(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		for _, test := range []struct {
			name string
			// then is what happens after the event a[0] was parked.
			then    func(d *drawer)
			filter  projection.DeadLetterFilter
			request engine.ReplayRequest
			refused bool
		}{
			{name: "later events are handled", refused: true,
				then: func(d *drawer) { d.must(d.run(d.write, d.batch(d.at["c"][2]))) }},
			{name: "one later event is handled, and another parked", refused: true,
				then: func(d *drawer) {
					d.must(d.run(d.write, d.batch(d.at["c"][1])))
					d.park(d.at["a"][2], false)
				}},
			{name: "out of order is asked for", filter: projection.DeadLetterFilter{OutOfOrder: true},
				then: func(d *drawer) { d.must(d.run(d.write, d.batch(d.at["c"][2]))) }},
			{name: "the projection handles events in any order", request: engine.ReplayRequest{AnyOrder: true},
				then: func(d *drawer) { d.must(d.run(d.write, d.batch(d.at["c"][2]))) }},
			{name: "later events are selected by the projection",
				request: engine.ReplayRequest{Types: []string{"other", "of a"}}, refused: true,
				then: func(d *drawer) { d.must(d.run(d.write, d.batch(d.at["c"][2]))) }},
			{name: "later events are not selected by the projection",
				request: engine.ReplayRequest{Types: []string{"other", "of b"}},
				then:    func(d *drawer) { d.must(d.run(d.write, d.batch(d.at["c"][2]))) }},
			{name: "later events are above the checkpoint",
				then: func(d *drawer) { d.must(d.run(d.write, d.batch(d.at["c"][0]))) }},
			{name: "later events are parked",
				then: func(d *drawer) {
					for _, p := range d.at["a"][1:] {
						if p-1 > d.Lease.Checkpoint {
							d.must(d.run(d.write, d.batch(p-1)))
						}
						d.park(p, false)
					}
				}},
			{name: "a later event was parked and replayed", refused: true,
				then: func(d *drawer) {
					d.must(d.run(d.write, d.batch(d.at["c"][0])))
					d.park(d.at["a"][1], false)
					d.ordered(projection.DeadLetterFilter{IDs: []int64{d.one(d.at["a"][1]).ID}}, engine.ReplayRequest{})
				}},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				d := newDrawer(kind.New(t), 3)
				first := d.at["a"][0]
				d.park(first, false)
				test.then(d)
				before := d.one(first)
				test.filter.IDs = []int64{before.ID}
				applied, result, err := d.ordered(test.filter, test.request)
				after := d.one(first)
				if !test.refused {
					want := projection.CommandResult{Done: 1}
					if err != nil || result != want || !slices.Equal(applied, []int64{first}) ||
						after.State != projection.DeadLetterResolved || after.OutOfOrder {
						t.Errorf("applied %v: %+v, %v; %+v", applied, result, err, after)
					}
					return
				}
				want := projection.CommandResult{Refused: &projection.Refused{Events: 1, Streams: []string{"a"}}}
				if !errors.Is(err, projection.ErrOutOfOrder) ||
					!strings.Contains(err.Error(), `of streams: "a"; rebuild the projection`) {
					t.Errorf("error %v", err)
				}
				before.OutOfOrder = true
				if len(applied) > 0 || !reflect.DeepEqual(result, want) || !reflect.DeepEqual(after, before) {
					t.Errorf("applied %v: %+v; %+v, before %+v", applied, result, after, before)
				}
				// It can be asked for after that.
				if applied, _, err := d.ordered(projection.DeadLetterFilter{IDs: test.filter.IDs, OutOfOrder: true},
					engine.ReplayRequest{}); err != nil || len(applied) != 1 {
					t.Errorf("out of order: applied %v, %v", applied, err)
				}
			})
		}
	})
}

func TestReplayOfManyDeadLettersRefusesThoseOutOfOrder(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := drawerOf(k, "p")
		var first, last []int64
		for i := range 12 {
			first = append(first, d.addTo(fmt.Sprintf("s%02d", i), "s"))
		}
		first = append(first, d.addTo("s00", "s"))
		for i := range 12 {
			last = append(last, d.addTo(fmt.Sprintf("s%02d", i), "s"))
		}
		last = append(last, d.addTo("alone", "s"))
		for _, p := range first {
			d.park(p, false)
		}
		d.must(d.run(d.write, d.batch(last[11])))
		d.park(last[12], false)
		applied, result, err := d.ordered(everything, engine.ReplayRequest{})
		if err != nil || !slices.Equal(applied, last[12:]) || result.Done != 1 || result.Failed != 0 ||
			result.Refused == nil || result.Refused.Events != 13 ||
			len(result.Refused.Streams) != 10 || result.Refused.Streams[0] != "s00" ||
			result.Refused.Streams[9] != "s09" {
			t.Errorf("applied %v: %+v, %+v, %v", applied, result, result.Refused, err)
		}
		// Without others, the result is an error.
		applied, result, err = d.ordered(everything, engine.ReplayRequest{})
		if !errors.Is(err, projection.ErrOutOfOrder) || len(applied) > 0 || result.Refused.Events != 13 {
			t.Errorf("applied %v: %+v, %v", applied, result, err)
		}
		d.mustHave(first)
	})
}

// A stream may be parked while an event of it is parked alone that is out of order: a store of an earlier release has
// such events.
func TestReplayOfAParkedStreamStopsAtAnEventOutOfOrder(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 4)
		a, b := d.at["a"], d.at["b"]
		d.park(a[0], false)
		d.must(d.run(d.write, d.batch(d.at["c"][1]))) // a[1] with it
		d.park(a[2], true)
		d.must(d.run(d.write, d.batch(d.at["a"][3]-1)))
		d.must(d.run(d.write, d.batch(a[3], a[3])))
		d.park(b[3], false)
		applied, result, err := d.ordered(everything, engine.ReplayRequest{})
		if err != nil || !slices.Equal(applied, b[3:]) || result.Done != 1 || result.Refused == nil ||
			result.Refused.Events != 1 {
			t.Errorf("applied %v: %+v, %v", applied, result, err)
		}
		d.mustHave([]int64{a[0], a[2], a[3]}, "a")
		applied, _, err = d.ordered(projection.DeadLetterFilter{Stream: "a", OutOfOrder: true}, engine.ReplayRequest{})
		if want := []int64{a[0], a[2], a[3]}; err != nil || !slices.Equal(applied, want) {
			t.Errorf("applied %v, want %v; %v", applied, want, err)
		}
		d.mustHave(nil)
	})
}

func TestParkedStreamIsReplayedAfterSomeOfItWereDiscarded(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 5)
		a := d.at["a"]
		d.must(d.run(d.write, d.batch(d.at["c"][0])))
		d.park(a[1], true)
		d.must(d.run(d.write, d.batch(d.at["c"][4], a[2:]...)))
		d.discard(a[2], a[4])
		applied, result, err := d.ordered(everything, engine.ReplayRequest{})
		if want := []int64{a[1], a[3]}; err != nil || !slices.Equal(applied, want) || result.Refused != nil {
			t.Errorf("applied %v, want %v: %+v, %v", applied, want, result, err)
		}
		d.mustHave(nil)
	})
}

// The holder of the lease decides when the replay begins. Events that the next holder has handled meanwhile count.
func TestNextOwnerDecidesAboutTheOrderOfAReplay(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 2)
		a := d.at["a"]
		d.park(a[0], false)
		command := d.give(engine.ReplayCommand, everything, 10)
		begun := d.begin(command, 0)
		if begun == nil || begun.OutOfOrder {
			t.Fatalf("%+v", begun)
		}
		late, batch := d.Lease, d.again(begun)
		d.claim()
		d.must(d.run(d.write, d.batch(d.at["c"][1])))
		if err := d.runAs(late, d.write, batch); !errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("the previous owner: %v", err)
		}
		if _, err := d.Plane().BeginReplay(d.Ctx, late, engine.ReplayRequest{Command: command}); !errors.Is(err,
			projection.ErrLeaseLost) {
			t.Errorf("the previous owner: %v", err)
		}
		if again := d.begin(command, 0); again == nil || !again.OutOfOrder {
			t.Errorf("%+v", again)
		}
		if d.begin(command, 0) != nil {
			t.Error("the command goes on")
		}
		if l := d.one(a[0]); l.State != projection.DeadLetterParked || !l.OutOfOrder || l.Replays != 0 ||
			l.Attempts != 4 {
			t.Errorf("%+v", l)
		}
		if _, err := d.letters().Wait(d.Ctx, command); !errors.Is(err, projection.ErrOutOfOrder) {
			t.Error(err)
		}
	})
}

// After a re-split, events above the checkpoint of a partition may have been handled by the partitions before it.
func TestEventsThatEarlierPartitionsHandledCountForTheOrder(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 2)
		d.park(d.at["a"][0], false)
		command := d.give(engine.ReplayCommand, everything, 10)
		d.Lease.Share.Passed = []partition.Passed{{Range: partition.All, Position: d.at["a"][1]}}
		if r := d.begin(command, 0); r == nil || !r.OutOfOrder {
			t.Errorf("%+v", r)
		}
	})
}

// The check reads at most 10,000 later events, since the transaction of the replay waits for it.
func TestReplayIsRefusedIfItsStreamIsTooLongToCheck(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := drawerOf(k, "p")
		d.park(d.addTo("a", "a"), false)
		others := projection.DeadLetterFilter{Stream: "a"}
		request := engine.ReplayRequest{Types: []string{"of a"}}
		for i, n := range []int{10_000, 1} {
			result := d.Append("a", n)
			_, err := d.Port.Advance(d.Ctx, []engine.Advance{{Lease: d.Lease, To: result.Positions[n-1]}})
			d.must(err)
			later := d.begin(d.give(engine.ReplayCommand, others, 1), 0) // of any type
			if later == nil || !later.OutOfOrder {
				t.Errorf("%d: %+v", i, later)
			}
			request.Command = d.give(engine.ReplayCommand, others, 1)
			r, err := d.Plane().BeginReplay(d.Ctx, d.Lease, request)
			d.Must(err)
			if r == nil || r.OutOfOrder != (i == 1) {
				t.Errorf("%d: %+v", i, r)
			}
		}
	})
}

func TestAutomaticReplayerLeavesEventsThatAreOutOfOrder(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 2)
		a, b := d.at["a"], d.at["b"]
		d.park(a[0], false)
		d.must(d.run(d.write, d.batch(d.at["a"][1])))
		d.park(b[1], false)
		d.Must(d.Store.Age(d.Ctx, time.Hour))
		policy := engine.Policy{Replay: projection.ReplayPolicy{Interval: time.Minute,
			MaxReplays: 2}}.WithDefaults().Replay
		schedule := func(anyOrder bool) (command int64) {
			t.Helper()
			scheduled, _, err := d.Plane().ScheduleReplay(d.Ctx, d.Lease, policy, anyOrder)
			d.Must(err)
			if !scheduled {
				return 0
			}
			queue, err := d.Plane().NextCommand(d.Ctx, d.Lease, false)
			d.Must(err)
			return queue.Command.ID
		}
		if r := d.begin(schedule(false), 0); r == nil || !r.OutOfOrder || r.Position != a[0] {
			t.Fatalf("%+v", r)
		}
		queue, err := d.Plane().NextCommand(d.Ctx, d.Lease, false)
		d.Must(err)
		if applied := d.replay(queue.Command.ID); applied != nil {
			t.Errorf("applied %v", applied)
		}
		// The refused dead letter does not delay the next one.
		if applied := d.replay(schedule(false)); !slices.Equal(applied, b[1:]) {
			t.Errorf("applied %v, want %v", applied, b[1:])
		}
		if command := schedule(false); command != 0 {
			t.Errorf("command %d replays it again", command)
		}
		if l := d.one(a[0]); !l.OutOfOrder || l.Replays != 0 || l.Attempts != 4 ||
			l.State != projection.DeadLetterParked {
			t.Errorf("%+v", l)
		}
		// A release of the program may declare that it does not mind the order.
		r, err := d.Plane().BeginReplay(d.Ctx, d.Lease, engine.ReplayRequest{Command: schedule(true), AnyOrder: true})
		d.Must(err)
		if r == nil || r.OutOfOrder || r.Position != a[0] {
			t.Errorf("%+v", r)
		}
	})
}

func TestReplayAfterLaterEventsIsRefusedUnlessAskedFor(t *testing.T) {
	inBothWays(t, millrace.Projection{Retry: kit.Soon(0), OnFailure: projection.ActionPark},
		func(t *testing.T, a *asking) {
			positions := a.parks(projection.Park, 2)
			a.Reaches(a.rt, "p", a.Append("a", 1).Positions[0])
			result, err := a.letters.Replay(a.Ctx, everything, 100)
			if !errors.Is(err, projection.ErrOutOfOrder) || result.Refused == nil || result.Refused.Events != 2 ||
				!slices.Equal(result.Refused.Streams, []string{"a"}) {
				t.Errorf("%+v, %v", result, err)
			}
			a.mustHave(2, 1, 0)
			letters := a.DeadLettersOf("p")
			if len(letters) != 2 || !letters[0].OutOfOrder || letters[0].Replays != 0 || letters[0].Attempts != 1 {
				t.Fatalf("%+v", letters)
			}
			_, err = a.letters.Replay(a.Ctx, projection.DeadLetterFilter{IDs: []int64{letters[1].ID}}, 1)
			if !errors.Is(err, projection.ErrOutOfOrder) {
				t.Error(err)
			}
			result, err = a.letters.Replay(a.Ctx, projection.DeadLetterFilter{All: true, OutOfOrder: true}, 100)
			if err != nil || result.Done != 2 || result.Refused != nil {
				t.Errorf("%+v, %v", result, err)
			}
			a.mustHave(0, 3, 0)
			if got := a.applied[1:]; !slices.Equal(got, positions) {
				t.Errorf("applied %v, want %v", got, positions)
			}
		})
}

func TestProjectionInAnyOrderParksAndReplaysSingleEvents(t *testing.T) {
	inBothWays(t, millrace.Projection{Retry: kit.Soon(0), AnyOrder: true, Partitions: 2},
		func(t *testing.T, a *asking) {
			fails := func(err error) error { return err }
			a.parks(fails, 1)
			a.Append("a", 1)
			a.Eventually("the later event is handled", func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				return len(a.applied) == 1
			})
			a.mustReplay(projection.CommandResult{Done: 1})
		})
}

func TestAutomaticReplayIsRefusedOnce(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		log, logs := kit.Logs()
		var late atomic.Int64
		observer := observe.Observer{Replayed: func(r observe.Replay) {
			if errors.Is(r.Err, projection.ErrOutOfOrder) {
				late.Add(1)
			}
		}}
		first := k.Append("a", 2).Positions[0]
		other := k.Append("b", 1).Positions[0]
		fails := kit.FailsAt("p", func(position int64) bool { return position == first || position == other },
			kit.Fails)
		rt := k.Running(millrace.Config{Logger: log, Observer: observer},
			millrace.Projection{Name: "p", Handler: k.Store.Batch(fails), Retry: kit.Soon(0),
				OnFailure: projection.ActionPark, MaxFailureShare: projection.NoLimit,
				Replay: projection.ReplayPolicy{
					Interval: 20 * time.Millisecond, Factor: 1, MaxReplays: projection.NoLimit,
				}})
		k.Reaches(rt, "p", other)
		replays := func(position int64) (n int) {
			for _, l := range k.DeadLettersOf("p") {
				if l.Position == position {
					n = l.Replays
				}
			}
			return n
		}
		k.Eventually("the event is left alone", func() bool { return late.Load() > 0 })
		before, others := replays(first), replays(other)
		k.Eventually("the other event is replayed again and again", func() bool { return replays(other) >= others+5 })
		refusals := logs.FilterMessage("replay refused: later events of the stream are handled, event stays parked")
		if after := replays(first); after != before || late.Load() != 1 || refusals.Len() != 1 {
			t.Errorf("%d replays failed, and %d before the refusal; refused %d times, logged %d times", after, before,
				late.Load(), refusals.Len())
		}
	})
}

func TestPartitionsRefuseReplaysEachForItself(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		var mended atomic.Bool
		streams := []string{"a", "b", "c", "d", "e", "f"}
		poison := make(map[int64]bool)
		for _, stream := range streams {
			poison[k.Append(stream, 1).Positions[0]] = true
		}
		last := k.Append("a", 1).Positions[0]
		fails := kit.FailsAt("p", func(position int64) bool { return poison[position] && !mended.Load() }, kit.Fails)
		rt := k.Running(millrace.Config{}, millrace.Projection{Name: "p",
			Handler: k.Store.Batch(fails), Retry: kit.Soon(0), Partitions: 4,
			OnFailure: projection.ActionPark, MaxFailureShare: projection.NoLimit})
		k.Reaches(rt, "p", last)
		mended.Store(true)
		result, err := k.Store.DeadLetters(millrace.ProjectionID{Name: "p"}).Replay(k.Ctx, everything, 100)
		if err != nil || result.Done != int64(len(streams)-1) || result.Refused == nil || result.Refused.Events != 1 ||
			!slices.Equal(result.Refused.Streams, streams[:1]) {
			t.Errorf("%+v, %+v, %v", result, result.Refused, err)
		}
	})
}

func TestOutOfOrderIsForReplaysAlone(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 1)
		filter := projection.DeadLetterFilter{All: true, OutOfOrder: true}
		_, list := d.letters().List(d.Ctx, projection.DeadLetterPage{DeadLetterFilter: filter})
		_, count := d.letters().Count(d.Ctx, filter)
		_, discard := d.letters().Discard(d.Ctx, filter, 1)
		_, purge := d.letters().Purge(d.Ctx, filter, 0, 1)
		_, nothing := d.letters().Replay(d.Ctx, projection.DeadLetterFilter{OutOfOrder: true}, 1)
		for name, err := range map[string]error{"list": list, "count": count, "discard": discard, "purge": purge} {
			if err == nil || !strings.Contains(err.Error(), "DeadLetterFilter.OutOfOrder is for Replay alone") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if nothing == nil || !strings.Contains(nothing.Error(), "the filter must not be empty") {
			t.Error(nothing)
		}
		if l, err := d.letters().(*deadletters.DeadLetters).Start(d.Ctx, engine.DiscardCommand, filter, 1); err == nil {
			t.Errorf("discard %d", l)
		}
	})
}
