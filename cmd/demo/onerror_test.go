package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/projection"
)

// poisoned is a finished run with poison events.
type poisoned struct {
	testPlace
	output string
	s      summary
	chosen poison
}

// runPoisoned runs the demo, which must verify its read models.
func runPoisoned(p testPlace, o options) *poisoned {
	t := p.t
	t.Helper()
	o.seed, o.writers, o.store, o.keep = 3, 4, p.storeFlags, true
	var out bytes.Buffer
	s, err := runDemo(t.Context(), o, &out)
	if err != nil || !s.Verified {
		t.Fatalf("verified %v: %v\n%s", s.Verified, err, out.String())
	}
	found, err := inspect(t.Context(), generate(o.events, o.seed), o.poison, o.seed)
	if err != nil {
		t.Fatal(err)
	}
	return &poisoned{testPlace: p, output: out.String(), s: s, chosen: found.poison}
}

// mustSay checks the run's output.
func (r *poisoned) mustSay(says ...string) {
	r.t.Helper()
	for _, what := range says {
		if !strings.Contains(r.output, what) {
			r.t.Errorf("the output has no %q:\n%s", what, r.output)
		}
	}
}

// mustNotice checks that the check fails after corrupt, and passes after repair.
func (r *poisoned) mustNotice(f *fault, corrupt, repair, says string) {
	r.t.Helper()
	for _, step := range []struct{ sql, says string }{{corrupt, says}, {repair, ""}} {
		r.change(step.sql)
		found := r.check(f).err()
		if step.says == "" && found != nil || step.says != "" &&
			(found == nil || !strings.Contains(found.Error(), step.says)) {
			r.t.Errorf("after %q: %v, want %q", step.sql, found, step.says)
		}
	}
}

// behind computes from the events alone how many of them are blocked by a poison event of their stream and projection,
// and how many streams continue after a poison event of the projection streams.
func (r *poisoned) behind(events int64) (behind, streams int64) {
	r.t.Helper()
	versions := make(map[string]int64)
	parked := make(map[eventID]bool) // by stream, the version being the index of the read model
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
			at := eventID{one.stream, int64(i)}
			switch {
			case parked[at]:
				behind++
				if m.name == "streams" && !slices.Contains(goOn, one.stream) {
					goOn = append(goOn, one.stream)
				}
			case r.chosen[eventID{one.stream, versions[one.stream]}] == m.name:
				parked[at] = true
			}
		}
	}
	return behind, int64(len(goOn))
}

func TestRunParksStreams(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(p testPlace) {
		t := p.t
		const events, chosen = 1000, 30
		r := runPoisoned(p, options{events: events, poison: chosen, onError: "park-stream"})
		behind, _ := r.behind(events)
		l := r.s.DeadLetters
		// Chosen events may follow others.
		if l.Behind != behind || behind == 0 || l.Parked-l.Behind > chosen || l.Left != l.Parked || l.Replayed != 0 {
			t.Errorf("%+v, want %d blocked and none replayed", l, behind)
		}
		r.mustSay("parks it and the later events of its stream\n", "0 were replayed, ", "that are parked\n")
		f := newFault(r.chosen, projection.ActionParkStream)
		letters := "update {letters} set "
		one := " where id = (select min(id) from {letters} where blocked_by_stream)"
		r.mustNotice(f, letters+"state = 'resolved'"+one, letters+"state = 'parked'"+one, "is resolved, not parked")
		r.mustNotice(f, letters+"state = 'discarded'"+one, letters+"state = 'parked'"+one, "is discarded, not parked")
		r.mustNotice(f, letters+"{version} = -{version}"+one, letters+
			"{version} = -{version} where {version} < 0", " unexpectedly ")
		r.mustNotice(f, letters+"blocked_by_stream = false, error = 'was behind'"+one, letters+
			"blocked_by_stream = true where error = 'was behind'", "unexpectedly (blocked by its stream: false)")
		// This event was applied although it is blocked.
		r.mustNotice(f, "update {schema}.streams set n = n + 1 where stream = 'declaration1'",
			"update {schema}.streams set n = n - 1 where stream = 'declaration1'", "streams has")
	})
}

func TestRunReplaysParkedStreamsInOrder(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(p testPlace) {
		t := p.t
		const events, chosen = 1000, 30
		r := runPoisoned(p, options{events: events, poison: chosen, onError: "park-stream", replay: true})
		behind, _ := r.behind(events)
		if l := r.s.DeadLetters; l.Behind != behind || l.Left != 0 || l.Replayed != l.Parked || l.Parked <= behind {
			t.Errorf("%+v, want all replayed, %d of them blocked", l, behind)
		}
		for i, p := range r.s.Projections {
			if p.Parked != 0 || p.OutOfOrder != 0 || i < 3 && p.Applied != events {
				t.Errorf("%+v, want all of %d events applied, in order", p, events)
			}
		}
		r.mustSay("at the end the handlers are repaired and the parked events replayed\n", "s "+string(replaying)+
			": ", "all are replayed\n",
			", 0 are still parked\n", " of them by a replay, each stream in order\n")
		f := newFault(r.chosen, projection.ActionParkStream)
		f.fixed.Store(true)
		letters := "update {letters} set "
		one := " where id = (select min(id) from {letters})"
		r.mustNotice(f, letters+"state = 'parked'"+one, letters+"state = 'resolved'"+one, "is parked, not resolved")
		r.mustNotice(f, letters+"state = 'replaying'"+one, letters+"state = 'resolved'"+
			one, "is replaying, not resolved")
	})
}

func TestReplayOfSingleEventsShowsReorderedRows(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(p testPlace) {
		t := p.t
		const events, chosen = 1000, 30
		r := runPoisoned(p, options{events: events, poison: chosen, onError: "park", replay: true})
		if l, want := r.s.DeadLetters, (deadLetterSummary{Parked: chosen, Replayed: chosen}); l != want {
			t.Errorf("%+v, want %+v", l, want)
		}
		_, streams := r.behind(events)
		if streams == 0 {
			t.Fatal("no stream continued after a poison event, so this shows nothing")
		}
		// There are fewer if the later event has the same type, but never more.
		for _, p := range r.s.Projections {
			if (p.Name == "streams") != (p.OutOfOrder > 0) || p.OutOfOrder > streams {
				t.Errorf("%+v, and %d streams continued after a poison event", p, streams)
			}
		}
		r.mustSay("reordered\n", "-on-error park-stream keeps the order",
			"30 of them by a replay, after later events of their streams\n")
	})
}

func TestRunSkipsPoisonEvents(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(p testPlace) {
		t := p.t
		r := runPoisoned(p, options{events: 1000, poison: 8, onError: "skip"})
		if r.s.DeadLetters != (deadLetterSummary{}) {
			t.Errorf("%+v, want none", r.s.DeadLetters)
		}
		r.mustSay("except the 8 that were skipped\n")
		// The check notices an unexpected skip.
		projections := "update {projections} set skipped = skipped "
		r.mustNotice(newFault(r.chosen, projection.ActionSkip), projections+"+ 1 where name = 'streams'", projections+
			"- 1 where name = 'streams'", "streams skipped")
	})
}

func TestRunFailsWhenAProjectionStops(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(p testPlace) {
		var out, errs bytes.Buffer
		if status := execute(p.args("-events", "1000", "-poison", "8", "-on-error", "stop", "-keep"), &out,
			&errs); status != 1 {
			p.t.Errorf("exit status %d, want 1\n%s", status, out.String())
		}
		for _, says := range []string{"projection failed", "event at position", "attempt 4", "chosen by -poison"} {
			if !strings.Contains(errs.String(), says) {
				p.t.Errorf("says %q, want %q", errs.String(), says)
			}
		}
		n := p.counts(`select 'letters', count(*) from {letters}
			union all select 'stopped', count(*) from {projections} where cast(halted as integer) = 1`)
		if n["letters"] != 0 || n["stopped"] == 0 {
			p.t.Errorf("%d events are parked, and %d projections have stopped", n["letters"], n["stopped"])
		}
	})
}
