package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/program"
	"github.com/millrace-go/millrace/projection"
)

// poisoned is a finished run with poison events.
type poisoned struct {
	t      *testing.T
	said   string
	s      summary
	chosen poison
	d      *program.Database
}

// runPoisoned makes a run that must be verified.
func runPoisoned(t *testing.T, o options) *poisoned {
	t.Helper()
	o.seed, o.writers, o.databaseURL, o.keep = 3, 4, pgtest.Database(t), true
	var out bytes.Buffer
	s, err := runDemo(t.Context(), o, &out)
	if err != nil || !s.Verified {
		t.Fatalf("verified %v: %v\n%s", s.Verified, err, out.String())
	}
	found, err := inspect(t.Context(), generate(o.events, o.seed), o.poison, o.seed)
	if err != nil {
		t.Fatal(err)
	}
	r := &poisoned{t: t, said: out.String(), s: s, chosen: found.poison, d: existing(t, o.databaseURL)}
	return r
}

// mustSay checks that the run's output holds this.
func (r *poisoned) mustSay(says ...string) {
	r.t.Helper()
	for _, what := range says {
		if !strings.Contains(r.said, what) {
			r.t.Errorf("the run does not say %q, but\n%s", what, r.said)
		}
	}
}

// finds checks that what a statement does is found and, undone, no longer.
func (r *poisoned) finds(f *fault, corrupt, repair, says string) {
	r.t.Helper()
	for _, step := range []struct{ sql, says string }{{corrupt, says}, {repair, ""}} {
		program.MustExec(r.t, r.d.Pool, step.sql)
		v, err := check(r.t.Context(), r.d, statusOf(r.t, r.d), f)
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
func (r *poisoned) behind(events int64) (behind, streams int64) {
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
	t.Parallel()
	const events, chosen = 1000, 30
	r := runPoisoned(t, options{events: events, poison: chosen, onError: "park-stream"})
	behind, _ := r.behind(events)
	l := r.s.DeadLetters
	// Some of those that were chosen may come behind others.
	if l.Behind != behind || behind == 0 || l.Parked-l.Behind > chosen || l.Left != l.Parked || l.Replayed != 0 {
		t.Errorf("%+v, want %d behind others and none replayed", l, behind)
	}
	r.mustSay("parks it and the later events of its stream\n", "0 replayed, ", "that are parked\n")
	f := newFault(r.chosen, projection.ActionParkStream)
	letters := "update demo_millrace.dead_letters set "
	one := " where id = (select min(id) from demo_millrace.dead_letters where blocked_by_stream)"
	r.finds(f, letters+"state = 'resolved'"+one, letters+"state = 'parked'"+one, "is resolved, not parked")
	r.finds(f, letters+"state = 'discarded'"+one, letters+"state = 'parked'"+one, "is discarded, not parked")
	r.finds(f, letters+"stream_version = -stream_version"+one, letters+"stream_version = -stream_version where stream_version < 0", " unexpectedly ")
	r.finds(f, letters+"blocked_by_stream = false, error = 'was behind'"+one, letters+"blocked_by_stream = true where error = 'was behind'", "unexpectedly (blocked by its stream: false)")
	// An event behind one that was applied all the same.
	r.finds(f, "update demo.streams set n = n + 1 where stream = 'declaration1'", "update demo.streams set n = n - 1 where stream = 'declaration1'", "streams holds")
}

func TestRunReplaysParkedStreamsInOrder(t *testing.T) {
	t.Parallel()
	const events, chosen = 1000, 30
	r := runPoisoned(t, options{events: events, poison: chosen, onError: "park-stream", replay: true})
	behind, _ := r.behind(events)
	if l := r.s.DeadLetters; l.Behind != behind || l.Left != 0 || l.Replayed != l.Parked || l.Parked <= behind {
		t.Errorf("%+v, want all replayed, %d of them behind others", l, behind)
	}
	for i, p := range r.s.Projections {
		if p.Parked != 0 || p.OutOfOrder != 0 || i < 3 && p.Applied != events {
			t.Errorf("%+v, want all of %d events applied, in order", p, events)
		}
	}
	r.mustSay("in the end the fault is fixed and what is parked is replayed\n", "s "+string(replaying)+": ", "all are replayed now\n",
		", 0 still parked\n", " of them by a replay, each stream in order\n")
	f := newFault(r.chosen, projection.ActionParkStream)
	f.fixed.Store(true)
	letters := "update demo_millrace.dead_letters set "
	one := " where id = (select min(id) from demo_millrace.dead_letters)"
	r.finds(f, letters+"state = 'parked'"+one, letters+"state = 'resolved'"+one, "is parked, not resolved")
	r.finds(f, letters+"state = 'replaying'"+one, letters+"state = 'resolved'"+one, "is replaying, not resolved")
}

func TestReplayOfSingleEventsTellsWhatIsOutOfOrder(t *testing.T) {
	t.Parallel()
	const events, chosen = 1000, 30
	r := runPoisoned(t, options{events: events, poison: chosen, onError: "park", replay: true})
	if l, want := r.s.DeadLetters, (deadLetterSummary{Parked: chosen, Replayed: chosen}); l != want {
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
	r.mustSay("reordered\n", "-on-error park-stream keeps the order", "30 of them by a replay, after later events of their streams\n")
}

func TestRunSkipsWhatIsToBeSkipped(t *testing.T) {
	t.Parallel()
	r := runPoisoned(t, options{events: 1000, poison: 8, onError: "skip"})
	if r.s.DeadLetters != (deadLetterSummary{}) {
		t.Errorf("%+v, want none", r.s.DeadLetters)
	}
	r.mustSay("except the 8 that were skipped\n")
	// The control: one that is skipped and was not chosen is found.
	projections := "update demo_millrace.projections set skipped = skipped "
	r.finds(newFault(r.chosen, projection.ActionSkip), projections+"+ 1 where name = 'streams'", projections+"- 1 where name = 'streams'", "streams skipped")
}

func TestRunEndsWhereAProjectionStops(t *testing.T) {
	t.Parallel()
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
