package tests_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/deadletters"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestDeadLettersAreListedByFilterAndPage(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 6)
		a, b, c := d.at["a"], d.at["b"], d.at["c"]
		d.anyOrder = true
		// a[1] and later events of its stream, b[0], b[3] and c[5] are parked. The others are applied.
		d.must(d.run(d.write, d.batch(a[0])))
		d.park(b[0], false)
		d.must(d.run(d.write, d.batch(c[0])))
		d.park(a[1], true)
		d.must(d.run(d.write, d.batch(a[3], a[2], a[3])))
		d.park(b[3], false)
		d.must(d.run(d.write, d.batch(b[5], a[4], a[5])))
		d.park(c[5], false)
		all := []int64{b[0], a[1], a[2], a[3], b[3], a[4], a[5], c[5]}
		slices.Sort(all)
		d.mustHave(all, "a")
		ids := make(map[int64]int64)
		for _, l := range d.list(projection.DeadLetterPage{}) {
			ids[l.Position] = l.ID
			e := d.events[l.Position]
			behind := l.Stream == "a" && l.Position != a[1]
			if l.Projection != d.Lease.ID || l.Stream != e.Stream || l.Version != e.Version || l.Type != e.Type ||
				l.BlockedByStream != behind || (l.Attempts == 0) != behind ||
				l.State != projection.DeadLetterParked || l.Replays != 0 || l.FirstFailedAt.IsZero() ||
				!l.EndedAt.IsZero() {
				t.Errorf("%+v", l)
			}
		}
		// b[3] is resolved, a[1] and a[2] are discarded, b[0] is being replayed.
		d.replay(d.give(engine.ReplayCommand, projection.DeadLetterFilter{IDs: []int64{ids[b[3]]}}, 1))
		if n, err := d.Plane().Discard(d.Ctx, d.Lease,
			d.give(engine.DiscardCommand, projection.DeadLetterFilter{Stream: "a"}, 2)); n != 2 || err != nil {
			t.Errorf("discarded %d, %v", n, err)
		}
		d.begin(d.give(engine.ReplayCommand, projection.DeadLetterFilter{All: true}, 1), 0)

		is := func(states ...projection.DeadLetterState) []projection.DeadLetterState { return states }
		for name, s := range map[string]struct {
			page projection.DeadLetterPage
			want []int64
		}{
			"default": {projection.DeadLetterPage{}, []int64{b[0], a[3], a[4], a[5], c[5]}},
			"all":     {projection.DeadLetterPage{States: deadletters.AllStates}, all},
			"resolved": {
				projection.DeadLetterPage{States: is(projection.DeadLetterResolved)}, []int64{b[3]},
			},
			"discarded": {
				projection.DeadLetterPage{States: is(projection.DeadLetterDiscarded)}, []int64{a[1], a[2]},
			},
			"replaying": {
				projection.DeadLetterPage{States: is(projection.DeadLetterReplaying)}, []int64{b[0]},
			},
			"ended": {
				projection.DeadLetterPage{States: is(projection.DeadLetterResolved, projection.DeadLetterDiscarded),
					NewestFirst: true}, []int64{b[3], a[2], a[1]},
			},
			"stream": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Stream: "a"}},
				[]int64{a[3], a[4], a[5]},
			},
			"no such stream": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Stream: "A"}}, nil,
			},
			"type": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Type: "of c"}}, []int64{c[5]},
			},
			"error": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Error: "parked after"}},
				[]int64{a[3], a[4], a[5]},
			},
			"error, a pattern": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Error: "bad%"}}, nil,
			},
			"ids": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{IDs: []int64{ids[c[5]],
					ids[a[1]], ids[b[0]], 77_777}}}, []int64{b[0], c[5]},
			},
			"ids, newest first": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{IDs: []int64{ids[b[0]],
					ids[c[5]], ids[a[1]], ids[c[5]]}}, States: deadletters.AllStates, NewestFirst: true, Limit: 2},
				[]int64{c[5], a[1]},
			},
			"ids, next newest": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{IDs: []int64{ids[b[0]],
					ids[c[5]], ids[a[1]]}}, States: deadletters.AllStates, NewestFirst: true, After: a[1]},
				[]int64{b[0]},
			},
			"ids, next page": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{IDs: []int64{ids[b[0]],
					ids[c[5]], ids[a[1]]}}, States: deadletters.AllStates, Limit: 1, After: b[0]}, []int64{a[1]},
			},
			"ids and a stream": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{IDs: []int64{ids[b[0]],
					ids[c[5]]}, Stream: "c", Error: "bad"}}, []int64{c[5]},
			},
			"no ids": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{IDs: []int64{}}}, nil,
			},
			"several": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Stream: "b", Type: "of b",
					Error: "bad at"}}, []int64{b[0]},
			},
			"several that fit not": {
				projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Stream: "b", Type: "of c"}},
				nil,
			},
			"first page": {projection.DeadLetterPage{States: deadletters.AllStates, Limit: 3}, all[:3]},
			"next page": {
				projection.DeadLetterPage{States: deadletters.AllStates, Limit: 3, After: all[2]}, all[3:6],
			},
			"last page": {
				projection.DeadLetterPage{States: deadletters.AllStates, Limit: 3, After: all[5]}, all[6:],
			},
			"beyond the last": {projection.DeadLetterPage{States: deadletters.AllStates, After: all[7]}, nil},
			"newest first": {
				projection.DeadLetterPage{States: deadletters.AllStates, NewestFirst: true, Limit: 3},
				[]int64{all[7], all[6], all[5]},
			},
			"next newest": {
				projection.DeadLetterPage{States: deadletters.AllStates, NewestFirst: true, Limit: 3, After: all[5]},
				[]int64{all[4], all[3], all[2]},
			},
			"beyond the oldest": {
				projection.DeadLetterPage{States: deadletters.AllStates, NewestFirst: true, After: all[0]}, nil,
			},
			"a very high limit": {
				projection.DeadLetterPage{Limit: math.MaxInt}, []int64{b[0], a[3], a[4], a[5], c[5]},
			},
		} {
			slices.Sort(s.want)
			got := positionsOf(d.list(s.page))
			if s.page.NewestFirst {
				slices.Reverse(s.want)
			}
			if !slices.Equal(got, s.want) {
				t.Errorf("%s: %v, want %v", name, got, s.want)
			}
			if s.page.Limit == 0 && s.page.After == 0 {
				if n, err := d.letters().Count(d.Ctx, s.page.DeadLetterFilter,
					s.page.States...); int(n) != len(s.want) || err != nil {
					t.Errorf("%s: counted %d, %v, want %d", name, n, err, len(s.want))
				}
			}
		}
		// Another projection of the same tenant has none of them.
		other := d.Store.DeadLetters(projection.ID{Name: "q"})
		d.Ensure(engine.NewProjection{Tenant: d.Lease.ID.Tenant, Name: "q", Partitions: 1})
		if letters, err := other.List(d.Ctx,
			projection.DeadLetterPage{States: deadletters.AllStates}); len(letters) != 0 || err != nil {
			t.Error(letters, err)
		}
		if n, err := other.Count(d.Ctx, projection.DeadLetterFilter{IDs: []int64{ids[b[0]]}},
			deadletters.AllStates...); n != 0 || err != nil {
			t.Error(n, err)
		}
		if n, err := other.Purge(d.Ctx, projection.DeadLetterFilter{All: true}, 0, 100); n != 0 || err != nil {
			t.Error(n, err)
		}
	})
}

func TestDeadLetterIsShownWithItsEvent(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 2)
		d.park(d.at["a"][0], false)
		id := d.one(d.at["a"][0]).ID
		letter, e, err := d.letters().Get(d.Ctx, id)
		var body map[string]string
		if err != nil || letter.ID != id || letter.Error != "bad at 1" || e.Position != letter.Position ||
			e.Stream != "a" || e.Version != 1 ||
			json.Unmarshal(e.Body, &body) != nil || body["of"] != "a" {
			t.Errorf("%+v, %+v, %v", letter, e, err)
		}
		if _, _, err := d.letters().Get(d.Ctx, id+1000); !errors.Is(err, projection.ErrDeadLetterNotFound) {
			t.Errorf("a dead letter that does not exist: %v", err)
		}
		d.Ensure(engine.NewProjection{Tenant: d.Lease.ID.Tenant, Name: "q", Partitions: 1})
		if _, _, err := d.Store.DeadLetters(projection.ID{Name: "q"}).Get(d.Ctx, id); !errors.Is(err,
			projection.ErrDeadLetterNotFound) {
			t.Errorf("a dead letter of another projection: %v", err)
		}
		d.Must(d.Store.Truncate(d.Ctx, 0))
		if letter, _, err := d.letters().Get(d.Ctx, id); !errors.Is(err, projection.ErrEventGone) || letter.ID != id {
			t.Errorf("a dead letter whose event is gone: %+v, %v", letter, err)
		}
	})
}

func TestBadInputForDeadLettersIsNamedAndChangesNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 2)
		d.park(d.at["a"][0], true)
		before := d.state()
		ctx := d.Ctx
		letters := d.letters()
		list := func(p projection.DeadLetterPage) error {
			_, err := letters.List(ctx, p)
			return err
		}
		replay := func(f projection.DeadLetterFilter, limit int) error {
			_, err := letters.Replay(ctx, f, limit)
			return err
		}
		discard := func(l projection.DeadLetters, f projection.DeadLetterFilter, limit int) error {
			_, err := l.Discard(ctx, f, limit)
			return err
		}
		purge := func(f projection.DeadLetterFilter, endedFor time.Duration, limit int) error {
			_, err := letters.Purge(ctx, f, endedFor, limit)
			return err
		}
		count := func(f projection.DeadLetterFilter, states ...projection.DeadLetterState) error {
			_, err := letters.Count(ctx, f, states...)
			return err
		}
		bad, none := projection.DeadLetterFilter{Error: "a\x00b"}, projection.DeadLetterFilter{All: true}
		for name, s := range map[string]struct {
			err  error
			says string
		}{
			"list, limit": {list(projection.DeadLetterPage{Limit: -1}), "Limit must not be negative: -1"},
			"list, error": {list(projection.DeadLetterPage{DeadLetterFilter: bad}), "Error"},
			"list, stream": {
				list(projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Stream: "\xff"}}),
				"Stream",
			},
			"list, type": {
				list(projection.DeadLetterPage{DeadLetterFilter: projection.DeadLetterFilter{Type: "\x00"}}), "Type",
			},
			"list, state": {
				list(projection.DeadLetterPage{States: []projection.DeadLetterState{"dead"}}), `"dead"`,
			},
			"list, beyond":   {list(projection.DeadLetterPage{After: -5}), "After must not be negative: -5"},
			"count":          {count(bad), "Error"},
			"count, state":   {count(none, projection.DeadLetterParked, "lost"), `"lost"`},
			"replay, error":  {replay(bad, 1), "Error"},
			"replay, limit":  {replay(none, 0), "limit must be at least 1: 0"},
			"discard, limit": {discard(letters, none, -3), "limit must be at least 1: -3"},
			"discard, error": {discard(letters, bad, 1), "Error"},
			"discard, unknown": {
				discard(d.Store.DeadLetters(projection.ID{Name: "q"}), none, 1),
				projection.ErrUnknownProjection.Error(),
			},
			"purge, limit":    {purge(none, 0, 0), "limit must be at least 1: 0"},
			"purge, error":    {purge(bad, 0, 1), "Error"},
			"purge, how long": {purge(none, -time.Second, 1), "-1s"},
		} {
			if s.err == nil || !strings.Contains(s.err.Error(), s.says) ||
				!strings.Contains(s.err.Error(), "dead letters of default/") {
				t.Errorf("%s: %v, want %q", name, s.err, s.says)
			}
		}
		if err := discard(d.Store.DeadLetters(projection.ID{Tenant: "unknown", Name: "p"}), none, 1); !errors.Is(err,
			tenancy.ErrUnknown) {
			t.Errorf("of an unknown tenant: %v", err)
		}
		if after := d.state(); after != before {
			t.Errorf("it was\n%s\nand is\n%s", before, after)
		}
	})
}

// Every write under a lost lease is refused and changes nothing. The control is the last part: the same writes under
// the valid lease.
func TestOnlyTheLeaseOwnerChangesDeadLetters(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		d := newDrawer(k, 6)
		a, b := d.at["a"], d.at["b"]
		d.park(a[0], true)
		d.park(b[0], false)
		command := d.give(engine.ReplayCommand, projection.DeadLetterFilter{Stream: "b"}, 10)
		gone := d.give(engine.DiscardCommand, projection.DeadLetterFilter{Stream: "b"}, 10)
		replay := d.begin(command, 0)
		lost := d.Lease
		d.claim()
		d.Must(d.Store.Age(d.Ctx, 24*time.Hour))
		ctx := d.Ctx
		due := engine.Policy{Replay: projection.ReplayPolicy{Interval: time.Second}}.WithDefaults().Replay
		writes := map[string]func(l engine.Lease) error{
			"park with its stream": func(l engine.Lease) error {
				return d.Plane().Park(ctx, l, d.letter(d.at["c"][0]), true)
			},
			"a batch with events behind": func(l engine.Lease) error {
				return d.runAs(l, d.write, engine.Batch{BlockedByStream: d.batch(a[1], a[1]).BlockedByStream, To: a[1]})
			},
			"begin a replay": func(l engine.Lease) error {
				_, err := d.Plane().BeginReplay(ctx, l, engine.ReplayRequest{Command: command})
				return err
			},
			"the batch of a replay": func(l engine.Lease) error {
				return d.runAs(l, d.write, d.again(replay))
			},
			"fail a replay": func(l engine.Lease) error {
				return d.Plane().FailReplay(ctx, l, failedReplay(*replay, errBad))
			},
			"discard": func(l engine.Lease) error {
				_, err := d.Plane().Discard(ctx, l, gone)
				return err
			},
		}
		before := d.state()
		for name, write := range writes {
			if err := write(lost); !errors.Is(err, projection.ErrLeaseLost) ||
				d.Port.Classify(err).Class != faults.LeaseLost {
				t.Errorf("%s: %v", name, err)
			}
		}
		if done, _, err := d.Plane().ScheduleReplay(ctx, lost, due, false); done ||
			!errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("scheduled %v, %v", done, err)
		}
		if after := d.state(); after != before {
			t.Errorf("it was\n%s\nand is\n%s", before, after)
		}
		if r := d.begin(command, 0); r == nil || r.Begun != 2 {
			t.Errorf("begun again: %+v", r)
		}
		for _, name := range []string{"the batch of a replay", "park with its stream", "a batch with events behind",
			"discard"} {
			was := d.state()
			if err := writes[name](d.Lease); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			d.refresh()
			if d.state() == was {
				t.Errorf("%s changes nothing", name)
			}
		}
		d.begin(command, 0) // which ends it
		if done, _, err := d.Plane().ScheduleReplay(ctx, d.Lease, due, false); !done || err != nil {
			t.Errorf("scheduled %v, %v", done, err)
		}
	})
}
