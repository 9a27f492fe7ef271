package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// spoilt is a run with poison events, and what is left of it.
type spoilt struct {
	t      *testing.T
	said   string
	s      summary
	chosen poison
	pool   *pgxpool.Pool
	store  *pgstore.Store
}

// spoil makes a run that must be verified.
func spoil(t *testing.T, o options) *spoilt {
	t.Helper()
	o.seed, o.writers, o.databaseURL, o.keep = 3, 4, pgtest.Database(t), true
	var out bytes.Buffer
	s, err := run(t.Context(), t.Context(), o, &out)
	if err != nil || !s.Verified {
		t.Fatalf("verified %v: %v\n%s", s.Verified, err, out.String())
	}
	found, err := look(t.Context(), generate(o.events, o.seed), o.poison, o.seed)
	if err != nil {
		t.Fatal(err)
	}
	r := &spoilt{t: t, said: out.String(), s: s, chosen: found.poison, pool: program.Pool(t, o.databaseURL)}
	if r.store, err = pgstore.OpenPool(t.Context(), r.pool, pgstore.Options{Schema: storeSchema}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.store.Close)
	return r
}

// mustSay checks that the run's output holds this.
func (r *spoilt) mustSay(says ...string) {
	r.t.Helper()
	for _, what := range says {
		if !strings.Contains(r.said, what) {
			r.t.Errorf("the run does not say %q, but\n%s", what, r.said)
		}
	}
}

// finds checks that what a statement does is found and, undone, no longer.
func (r *spoilt) finds(f *fault, corrupt, mend, says string) {
	r.t.Helper()
	for _, step := range []struct{ sql, says string }{{corrupt, says}, {mend, ""}} {
		program.MustExec(r.t, r.pool, step.sql)
		v, err := check(r.t.Context(), r.pool, r.store, f)
		if err != nil {
			r.t.Fatal(err)
		}
		found := v.err()
		if step.says == "" && found != nil || step.says != "" && (found == nil || !strings.Contains(found.Error(), step.says)) {
			r.t.Errorf("after %q: %v, want %q", step.sql, found, step.says)
		}
	}
}

// behind walks through the events without a store: how many of each projection's come behind one of their stream that was
// chosen for it, and how many streams of the read model streams go on behind one.
func (r *spoilt) behind(events int64) (behind, streams int64) {
	r.t.Helper()
	versions := make(map[string]int64)
	parked := make(map[place]bool) // by stream, the version being the index of the read model
	var goOn []string
	for one, err := range generate(events, 3) {
		if err != nil {
			r.t.Fatal(err)
		}
		versions[one.stream]++
		for i, m := range readModels {
			if !m.concerns(one.event.Type) {
				continue
			}
			at := place{one.stream, int64(i)}
			switch {
			case parked[at]:
				behind++
				if m.name == "streams" && !slices.Contains(goOn, one.stream) {
					goOn = append(goOn, one.stream)
				}
			case r.chosen[place{one.stream, versions[one.stream]}] == m.name:
				parked[at] = true
			}
		}
	}
	return behind, int64(len(goOn))
}

func TestRunParksStreams(t *testing.T) {
	const events, poisoned = 1000, 30
	r := spoil(t, options{events: events, poison: poisoned, onError: "park-stream"})
	behind, _ := r.behind(events)
	l := r.s.DeadLetters
	// Some of those that were chosen may come behind others.
	if l.Behind != behind || behind == 0 || l.Parked-l.Behind > poisoned || l.Left != l.Parked || l.Replayed != 0 {
		t.Errorf("%+v, want %d behind others and none replayed", l, behind)
	}
	r.mustSay("and the later ones of its stream behind it\n", "0 replayed, ", "that were to be parked\n")
	f := newFault(r.chosen, projection.ActionParkStream)
	letters := "update demo_millrace.dead_letters set "
	one := " where id = (select min(id) from demo_millrace.dead_letters where behind)"
	r.finds(f, letters+"state = 'resolved'"+one, letters+"state = 'parked'"+one, "replayed position")
	r.finds(f, letters+"state = 'discarded'"+one, letters+"state = 'parked'"+one, "1 discarded events")
	r.finds(f, letters+"stream_version = -stream_version"+one, letters+"stream_version = -stream_version where stream_version < 0", "which was not to be: parked behind")
	r.finds(f, letters+"behind = false, error = 'was behind'"+one, letters+"behind = true where error = 'was behind'", "as one behind another: false; it should be true")
	// An event behind one that was applied all the same.
	r.finds(f, "update demo.streams set n = n + 1 where stream = 'declaration1'", "update demo.streams set n = n - 1 where stream = 'declaration1'", "streams holds")
}

func TestRunReplaysParkedStreamsInOrder(t *testing.T) {
	const events, poisoned = 1000, 30
	r := spoil(t, options{events: events, poison: poisoned, onError: "park-stream", replay: true})
	behind, _ := r.behind(events)
	if l := r.s.DeadLetters; l.Behind != behind || l.Left != 0 || l.Replayed != l.Parked || l.Parked <= behind {
		t.Errorf("%+v, want all replayed, %d of them behind others", l, behind)
	}
	for i, p := range r.s.Projections {
		if p.Parked != 0 || p.OutOfOrder != 0 || i < 3 && p.Applied != events {
			t.Errorf("%+v, want all of %d events applied, in order", p, events)
		}
	}
	r.mustSay("in the end that is mended, and what is parked is replayed\n", "s "+string(replaying)+": ", "mended, all are replayed now\n", "were replayed, 0 failed again\n",
		", 0 still parked\n", " of them by a replay, each stream in order\n")
	f := newFault(r.chosen, projection.ActionParkStream)
	f.mended.Store(true)
	letters := "update demo_millrace.dead_letters set "
	one := " where id = (select min(id) from demo_millrace.dead_letters)"
	r.finds(f, letters+"state = 'parked'"+one, letters+"state = 'resolved'"+one, "parked position")
	r.finds(f, letters+"state = 'replaying'"+one, letters+"state = 'resolved'"+one, "that were to be")
}

func TestReplayOfSingleEventsTellsWhatIsOutOfOrder(t *testing.T) {
	const events, poisoned = 1000, 30
	r := spoil(t, options{events: events, poison: poisoned, onError: "park", replay: true})
	if l, want := r.s.DeadLetters, (letterSummary{Parked: poisoned, Replayed: poisoned}); l != want {
		t.Errorf("%+v, want %+v", l, want)
	}
	_, streams := r.behind(events)
	if streams == 0 {
		t.Fatal("no stream went on behind a poison event, so this shows nothing")
	}
	// Fewer where the event that came behind is of the same type; never more.
	for _, p := range r.s.Projections {
		if (p.Name == "streams") != (p.OutOfOrder > 0) || p.OutOfOrder > streams {
			t.Errorf("%+v, and %d streams went on behind a poison event", p, streams)
		}
	}
	r.mustSay("equal, with ", "-on-error park-stream keeps the order", "30 of them by a replay, behind what came after them\n")
}

func TestRunSkipsWhatIsToBeSkipped(t *testing.T) {
	r := spoil(t, options{events: 1000, poison: 8, onError: "skip"})
	if r.s.DeadLetters != (letterSummary{}) {
		t.Errorf("%+v, want none", r.s.DeadLetters)
	}
	r.mustSay("but for the 8 that were to be skipped\n")
	// The control: one that is skipped and was not chosen is found.
	projections := "update demo_millrace.projections set skipped = skipped "
	r.finds(newFault(r.chosen, projection.ActionSkip), projections+"+ 1 where name = 'streams'", projections+"- 1 where name = 'streams'", "streams skipped")
}

func TestRunEndsWhereAProjectionStops(t *testing.T) {
	dsn := pgtest.Database(t)
	var out, errs bytes.Buffer
	args := []string{"-events", "1000", "-poison", "8", "-on-error", "stop", "-database-url", dsn, "-keep"}
	if status := execute(args, &out, &errs); status != 1 {
		t.Errorf("exit status %d, want 1\n%s", status, out.String())
	}
	for _, says := range []string{"projection failed", "event at position", "attempt 4", "chosen by -poison"} {
		if !strings.Contains(errs.String(), says) {
			t.Errorf("says %q, want %q", errs.String(), says)
		}
	}
	var letters, stopped int
	if err := program.Pool(t, dsn).QueryRow(t.Context(), `select (select count(*) from demo_millrace.dead_letters),
		(select count(*) from demo_millrace.projections where halted)`).Scan(&letters, &stopped); err != nil || letters != 0 || stopped == 0 {
		t.Errorf("%d events are parked, and %d projections have stopped: %v", letters, stopped, err)
	}
}

func TestOnlyWhatIsAppliedAtOnceIsTimed(t *testing.T) {
	chosen := poison{place{"a", 3}: "streams", place{"a", 5}: "payments"}
	for action, delayed := range map[projection.Action][]int64{
		projection.ActionPark: {3, 5}, projection.ActionSkip: {3, 5}, projection.ActionParkStream: {3, 4, 5, 6},
	} {
		f := newFault(chosen, action)
		for version := range int64(7) {
			if got := f.delays(place{"a", version}); got != slices.Contains(delayed, version) || f.delays(place{"b", version}) {
				t.Errorf("%v: version %d is delayed: %v", action, version, got)
			}
		}
	}
}
