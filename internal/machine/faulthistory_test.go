package machine

import (
	"cmp"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"pgregory.net/rapid"
)

func TestDecisionsAboutFaults(t *testing.T) {
	limits := engine.FaultLimits{Faults: 3, Over: 10 * time.Second, MissingObject: 5 * time.Second}
	type step struct {
		class engine.Class
		at    int // in seconds
		batch int // how many events, 0 meaning 1
		away  bool
		other int64 // which event, 0 meaning the first
		want  FaultDecision
	}
	for name, steps := range map[string][]step{
		"a handler's own fault":             {{class: engine.HandlerFault, want: CountIt}},
		"a handler's own, in a batch":       {{class: engine.HandlerFault, batch: 2, want: NarrowIt}},
		"never counted":                     {{class: engine.Infrastructure}, {class: engine.Infrastructure, at: 1e6}, {class: engine.Infrastructure, at: 2e6, batch: 9}},
		"no fault of a batch":               {{class: engine.Configuration}, {class: engine.LeaseLost, batch: 2}},
		"unclear, often and long enough":    {{class: engine.Unclear}, {class: engine.Unclear, at: 5}, {class: engine.Unclear, at: 10, want: CountIt}, {class: engine.Unclear, at: 11, want: CountIt}},
		"unclear, often but not for long":   {{class: engine.Unclear}, {class: engine.Unclear, at: 1}, {class: engine.Unclear, at: 2}, {class: engine.Unclear, at: 9}, {class: engine.Unclear, at: 10, want: CountIt}},
		"unclear, for long but not often":   {{class: engine.Unclear}, {class: engine.Unclear, at: 100}, {class: engine.Unclear, at: 101, want: CountIt}},
		"unclear, in batches":               {{class: engine.Unclear, batch: 8, want: NarrowIt}, {class: engine.Unclear, at: 99, batch: 4, want: NarrowIt}, {class: engine.Unclear, at: 99}},
		"unclear, with an outage":           {{class: engine.Unclear}, {class: engine.Unclear, at: 20}, {class: engine.Unclear, at: 30, away: true}, {class: engine.Unclear, at: 40}, {class: engine.Unclear, at: 45}, {class: engine.Unclear, at: 50, want: CountIt}},
		"unclear, only while it is away":    {{class: engine.Unclear, away: true}, {class: engine.Unclear, at: 50, away: true}, {class: engine.Unclear, at: 99, batch: 3, away: true}, {class: engine.Unclear, at: 100, away: true}},
		"unclear, of another event":         {{class: engine.Unclear}, {class: engine.Unclear, at: 20}, {class: engine.Unclear, at: 30, other: 2}, {class: engine.Unclear, at: 50, other: 2}, {class: engine.Unclear, at: 60, other: 2, want: CountIt}},
		"unclear, with waits between":       {{class: engine.Unclear}, {class: engine.Infrastructure, at: 1}, {class: engine.Unclear, at: 2}, {class: engine.Infrastructure, at: 50}, {class: engine.Unclear, at: 51, want: CountIt}},
		"interrupted":                       {{class: engine.Interrupted, want: TryAgain}, {class: engine.Interrupted, want: CountIt}, {class: engine.Interrupted, want: CountIt}, {class: engine.Interrupted, other: 2, want: TryAgain}},
		"interrupted, in a batch":           {{class: engine.Interrupted, batch: 2, want: NarrowIt}, {class: engine.Interrupted, want: TryAgain}},
		"missing":                           {{class: engine.MissingObject}, {class: engine.MissingObject, at: 4}, {class: engine.MissingObject, at: 5, want: CountIt}, {class: engine.MissingObject, at: 6, want: CountIt}},
		"missing, in a batch":               {{class: engine.MissingObject, at: 9, batch: 2, want: NarrowIt}, {class: engine.MissingObject, at: 9}},
		"missing, with others between":      {{class: engine.MissingObject}, {class: engine.HandlerFault, at: 3, want: CountIt}, {class: engine.MissingObject, at: 6}, {class: engine.MissingObject, at: 11, want: CountIt}},
		"missing, with waits between":       {{class: engine.MissingObject}, {class: engine.Infrastructure, at: 3}, {class: engine.MissingObject, at: 6, want: CountIt}},
		"missing, while a probe would fail": {{class: engine.MissingObject, away: true}, {class: engine.MissingObject, at: 5, want: CountIt}},
	} {
		var h FaultHistory
		for i, s := range steps {
			f := BatchFault{Class: s.class, Position: max(1, s.other), Alone: s.batch < 2, Unreachable: s.away, Now: time.Unix(int64(s.at), 0)}
			if got := h.Decide(limits, f); got != cmp.Or(s.want, WaitForIt) {
				t.Errorf("%s, step %d: %v, want %v", name, i+1, got, s.want)
			}
		}
	}
}

var classes = []engine.Class{engine.Infrastructure, engine.LeaseLost, engine.HandlerFault, engine.Configuration, engine.Unclear,
	engine.Interrupted, engine.MissingObject}

// In any order of faults, a counted fault was met by its event alone, often and long enough. A fault that recurs is counted
// in the end, unless it cannot be the event's.
func TestFaultsAreCountedForGoodReasonsOnly(t *testing.T) {
	limits := engine.FaultLimits{Faults: 4, Over: 20 * time.Second, MissingObject: 15 * time.Second}
	rapid.Check(t, func(t *rapid.T) {
		var h FaultHistory
		now, position := time.Unix(0, 0), int64(1)
		var unclear, missing []time.Time // since the event is this one, and nothing else says otherwise
		interrupted := 0
		for range rapid.IntRange(1, 60).Draw(t, "faults") {
			now = now.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "seconds")) * time.Second)
			if rapid.IntRange(0, 9).Draw(t, "moves on") == 0 {
				position++
				unclear, missing, interrupted = nil, nil, 0
				if rapid.Bool().Draw(t, "succeeded") {
					h.Forget()
				}
			}
			f := BatchFault{Class: rapid.SampledFrom(classes).Draw(t, "class"), Position: position,
				Alone: rapid.IntRange(0, 4).Draw(t, "alone") > 0, Now: now}
			f.Unreachable = f.Class == engine.Unclear && rapid.IntRange(0, 9).Draw(t, "away") == 0
			got := h.Decide(limits, f)
			switch {
			case f.Unreachable:
				unclear, missing, interrupted = nil, nil, 0
			case !f.Alone || !f.Class.MayCount():
			default:
				if f.Class != engine.MissingObject {
					missing = nil
				}
				switch f.Class {
				case engine.Unclear:
					unclear = append(unclear, now)
				case engine.Interrupted:
					interrupted++
				case engine.MissingObject:
					missing = append(missing, now)
				}
			}
			want := WaitForIt
			switch {
			case !f.Class.MayCount(), f.Unreachable:
			case !f.Alone:
				want = NarrowIt
			case f.Class == engine.Interrupted && interrupted == 1:
				want = TryAgain
			case f.Class == engine.HandlerFault, f.Class == engine.Interrupted,
				f.Class == engine.Unclear && len(unclear) >= limits.Faults && now.Sub(unclear[0]) >= limits.Over,
				f.Class == engine.MissingObject && now.Sub(missing[0]) >= limits.MissingObject:
				want = CountIt
			}
			if got != want {
				t.Fatalf("%+v: %v, want %v", f, got, want)
			}
		}
	})
}
