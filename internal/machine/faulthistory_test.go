package machine

import (
	"cmp"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
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
		"a handler's own fault":       {{class: engine.HandlerFault, want: CountIt}},
		"a handler's own, in a batch": {{class: engine.HandlerFault, batch: 2, want: NarrowIt}},
		"never counted": {
			{class: engine.Infrastructure}, {class: engine.Infrastructure, at: 1e6},
			{class: engine.Infrastructure, at: 2e6, batch: 9},
		},
		"no fault of a batch": {{class: engine.Configuration}, {class: engine.LeaseLost, batch: 2}},
		"unclear, often and long enough": {
			{class: engine.Unclear}, {class: engine.Unclear, at: 5}, {class: engine.Unclear, at: 10, want: CountIt},
			{class: engine.Unclear, at: 11, want: CountIt},
		},
		"unclear, often but not for long": {
			{class: engine.Unclear}, {class: engine.Unclear, at: 1}, {class: engine.Unclear, at: 2},
			{class: engine.Unclear, at: 9}, {class: engine.Unclear, at: 10, want: CountIt},
		},
		"unclear, for long but not often": {
			{class: engine.Unclear}, {class: engine.Unclear, at: 100}, {class: engine.Unclear, at: 101, want: CountIt},
		},
		"unclear, in batches": {
			{class: engine.Unclear, batch: 8, want: NarrowIt},
			{class: engine.Unclear, at: 99, batch: 4, want: NarrowIt}, {class: engine.Unclear, at: 99},
		},
		"unclear, with an outage": {
			{class: engine.Unclear}, {class: engine.Unclear, at: 20}, {class: engine.Unclear, at: 30, away: true},
			{class: engine.Unclear, at: 40}, {class: engine.Unclear, at: 45},
			{class: engine.Unclear, at: 50, want: CountIt},
		},
		"unclear, only while it is away": {
			{class: engine.Unclear, away: true}, {class: engine.Unclear, at: 50, away: true},
			{class: engine.Unclear, at: 99, batch: 3, away: true}, {class: engine.Unclear, at: 100, away: true},
		},
		"unclear, of another event": {
			{class: engine.Unclear}, {class: engine.Unclear, at: 20}, {class: engine.Unclear, at: 30, other: 2},
			{class: engine.Unclear, at: 50, other: 2}, {class: engine.Unclear, at: 60, other: 2, want: CountIt},
		},
		"unclear, with waits between": {
			{class: engine.Unclear}, {class: engine.Infrastructure, at: 1}, {class: engine.Unclear, at: 2},
			{class: engine.Infrastructure, at: 50}, {class: engine.Unclear, at: 51, want: CountIt},
		},
		"interrupted": {
			{class: engine.Interrupted, want: TryAgain}, {class: engine.Interrupted, want: CountIt},
			{class: engine.Interrupted, want: CountIt}, {class: engine.Interrupted, other: 2, want: TryAgain},
		},
		"interrupted, in a batch": {
			{class: engine.Interrupted, batch: 2, want: NarrowIt}, {class: engine.Interrupted, want: TryAgain},
		},
		"missing": {
			{class: engine.MissingObject}, {class: engine.MissingObject, at: 4},
			{class: engine.MissingObject, at: 5, want: CountIt}, {class: engine.MissingObject, at: 6, want: CountIt},
		},
		"missing, in a batch": {
			{class: engine.MissingObject, at: 9, batch: 2, want: NarrowIt}, {class: engine.MissingObject, at: 9},
		},
		"missing, with others between": {
			{class: engine.MissingObject}, {class: engine.HandlerFault, at: 3, want: CountIt},
			{class: engine.MissingObject, at: 6}, {class: engine.MissingObject, at: 11, want: CountIt},
		},
		"missing, with waits between": {
			{class: engine.MissingObject}, {class: engine.Infrastructure, at: 3},
			{class: engine.MissingObject, at: 6, want: CountIt},
		},
		"missing, while a probe would fail": {
			{class: engine.MissingObject, away: true}, {class: engine.MissingObject, at: 5, want: CountIt},
		},
	} {
		var h FaultHistory
		for i, s := range steps {
			f := BatchFault{
				Class: s.class, Position: max(1, s.other), Alone: s.batch < 2, Unreachable: s.away,
				Now: time.Unix(int64(s.at), 0),
			}
			if got := h.Decide(limits, f); got != cmp.Or(s.want, WaitForIt) {
				t.Errorf("%s, step %d: %v, want %v", name, i+1, got, s.want)
			}
		}
	}
}
