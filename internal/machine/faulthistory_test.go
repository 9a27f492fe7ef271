package machine

import (
	"cmp"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine/faults"
)

func TestDecisionsAboutFaults(t *testing.T) {
	limits := faults.Limits{Faults: 3, Over: 10 * time.Second, MissingObject: 5 * time.Second}
	type step struct {
		class faults.Class
		at    int // in seconds
		batch int // how many events, 0 meaning 1
		away  bool
		other int64 // which event, 0 meaning the first
		want  FaultDecision
	}
	for name, steps := range map[string][]step{
		"a handler's own fault":       {{class: faults.Handler, want: CountIt}},
		"a handler's own, in a batch": {{class: faults.Handler, batch: 2, want: NarrowIt}},
		"never counted": {
			{class: faults.Infrastructure}, {class: faults.Infrastructure, at: 1e6},
			{class: faults.Infrastructure, at: 2e6, batch: 9},
		},
		"no fault of a batch": {{class: faults.Configuration}, {class: faults.LeaseLost, batch: 2}},
		"unclear, often and long enough": {
			{class: faults.Unclear}, {class: faults.Unclear, at: 5}, {class: faults.Unclear, at: 10, want: CountIt},
			{class: faults.Unclear, at: 11, want: CountIt},
		},
		"unclear, often but not for long": {
			{class: faults.Unclear}, {class: faults.Unclear, at: 1}, {class: faults.Unclear, at: 2},
			{class: faults.Unclear, at: 9}, {class: faults.Unclear, at: 10, want: CountIt},
		},
		"unclear, for long but not often": {
			{class: faults.Unclear}, {class: faults.Unclear, at: 100}, {class: faults.Unclear, at: 101, want: CountIt},
		},
		"unclear, in batches": {
			{class: faults.Unclear, batch: 8, want: NarrowIt},
			{class: faults.Unclear, at: 99, batch: 4, want: NarrowIt}, {class: faults.Unclear, at: 99},
		},
		"unclear, with an outage": {
			{class: faults.Unclear}, {class: faults.Unclear, at: 20}, {class: faults.Unclear, at: 30, away: true},
			{class: faults.Unclear, at: 40}, {class: faults.Unclear, at: 45},
			{class: faults.Unclear, at: 50, want: CountIt},
		},
		"unclear, only while it is away": {
			{class: faults.Unclear, away: true}, {class: faults.Unclear, at: 50, away: true},
			{class: faults.Unclear, at: 99, batch: 3, away: true}, {class: faults.Unclear, at: 100, away: true},
		},
		"unclear, of another event": {
			{class: faults.Unclear}, {class: faults.Unclear, at: 20}, {class: faults.Unclear, at: 30, other: 2},
			{class: faults.Unclear, at: 50, other: 2}, {class: faults.Unclear, at: 60, other: 2, want: CountIt},
		},
		"unclear, with waits between": {
			{class: faults.Unclear}, {class: faults.Infrastructure, at: 1}, {class: faults.Unclear, at: 2},
			{class: faults.Infrastructure, at: 50}, {class: faults.Unclear, at: 51, want: CountIt},
		},
		"interrupted": {
			{class: faults.Interrupted, want: TryAgain}, {class: faults.Interrupted, want: CountIt},
			{class: faults.Interrupted, want: CountIt}, {class: faults.Interrupted, other: 2, want: TryAgain},
		},
		"interrupted, in a batch": {
			{class: faults.Interrupted, batch: 2, want: NarrowIt}, {class: faults.Interrupted, want: TryAgain},
		},
		"missing": {
			{class: faults.MissingObject}, {class: faults.MissingObject, at: 4},
			{class: faults.MissingObject, at: 5, want: CountIt}, {class: faults.MissingObject, at: 6, want: CountIt},
		},
		"missing, in a batch": {
			{class: faults.MissingObject, at: 9, batch: 2, want: NarrowIt}, {class: faults.MissingObject, at: 9},
		},
		"missing, with others between": {
			{class: faults.MissingObject}, {class: faults.Handler, at: 3, want: CountIt},
			{class: faults.MissingObject, at: 6}, {class: faults.MissingObject, at: 11, want: CountIt},
		},
		"missing, with waits between": {
			{class: faults.MissingObject}, {class: faults.Infrastructure, at: 3},
			{class: faults.MissingObject, at: 6, want: CountIt},
		},
		"missing, while a probe would fail": {
			{class: faults.MissingObject, away: true}, {class: faults.MissingObject, at: 5, want: CountIt},
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
