package chaos_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/millrace-go/millrace/projection"
)

func TestJudgeTellsTakeoversFromThefts(t *testing.T) {
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	n := &node{name: "n"}
	a, b := &life{node: n, id: "a"}, &life{node: n, id: "b"}
	of := projection.ID{Tenant: "acme", Name: "ledger"}
	claim := func(ms int, from, to string, epoch int64) change {
		return change{at: at(ms), of: of, from: from, to: to, lastEpoch: epoch - 1, epoch: epoch}
	}
	free := func(ms int, from string, epoch int64) change {
		return change{at: at(ms), of: of, from: from, lastEpoch: epoch, epoch: epoch}
	}
	ranOut := func(c change) change {
		c.ranOut = true
		return c
	}
	dead := []trouble{{who: a, what: "killed", from: at(1000), to: at(1000)}}
	for name, test := range map[string]struct {
		changes  []change
		troubles []trouble
		away     []nobody
		gaps     []int // of the takeovers, in ms
		kinds    []string
	}{
		"the first claim is no takeover": {changes: []change{claim(0, "", "a", 1)}},
		"given back and claimed":         {changes: []change{free(500, "a", 1), claim(530, "", "b", 2)}, gaps: []int{30}},
		"given back and claimed again":   {changes: []change{free(500, "a", 1), claim(530, "", "a", 2)}},
		"after a death":                  {changes: []change{claim(1800, "a", "b", 2)}, troubles: dead, gaps: []int{800}},
		"after a death, by the heartbeat": {changes: []change{ranOut(claim(4800, "a", "b", 2))},
			troubles: []trouble{{who: a, what: "frozen", from: at(1000)}}, gaps: []int{3800}},
		"before the death":                 {changes: []change{claim(900, "a", "b", 2)}, troubles: dead, gaps: []int{0}, kinds: []string{kindStolen}},
		"long after it":                    {changes: []change{claim(9000, "a", "b", 2)}, troubles: dead, gaps: []int{0}, kinds: []string{kindStolen}},
		"from somebody who was not hit":    {changes: []change{claim(1800, "b", "a", 2)}, troubles: dead, gaps: []int{0}, kinds: []string{kindStolen}},
		"from one whose heartbeat ran out": {changes: []change{ranOut(claim(1800, "b", "a", 2))}, gaps: []int{0}},
		"an epoch that stays":              {changes: []change{{at: at(0), of: of, to: "a", lastEpoch: 3, epoch: 3}}, kinds: []string{kindEpoch}},
		"while the server was away": {changes: []change{claim(5000, "a", "b", 2)}, troubles: []trouble{{who: a, from: at(1000)}},
			away: []nobody{{at(1500), at(4900)}}, gaps: []int{100}},
	} {
		t.Run(name, func(t *testing.T) {
			o := judge(test.changes, test.troubles, []*life{a, b}, test.away)
			var gaps []int
			for _, taken := range o.takeovers {
				gaps = append(gaps, int(taken.gap.Milliseconds()))
			}
			var kinds []string
			for _, f := range o.findings {
				kinds = append(kinds, f.kind)
			}
			if !slices.Equal(gaps, test.gaps) || !slices.Equal(kinds, test.kinds) {
				t.Errorf("gaps %v and findings %q, want %v and %q", gaps, kinds, test.gaps, test.kinds)
			}
		})
	}
}

func TestNodeThatEndedBeforeItToldItsIDIsKnownByItsLog(t *testing.T) {
	n := &node{name: "n3", log: filepath.Join(t.TempDir(), "log")}
	log := "2026-11-22T00:33:40.012Z\tINFO\tn3/615\truntime started\t{\"node\": \"c30c\", \"projections\": [\"audit\"]}\n" +
		"2026-11-22T00:33:40.312Z\tINFO\tn3/616\truntime started\t{\"node\": \"other\", \"projections\": [\"audit\"]}\n"
	if err := os.WriteFile(n.log, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	n.lives = []*life{{node: n, pid: 615}, {node: n, pid: 616, id: "told"}, {node: n, pid: 617}}
	if err := n.learnFromLog(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"c30c", "told", ""} {
		if got := n.lives[i].identity(); got != want {
			t.Errorf("%s is %q, want %q", n.lives[i], got, want)
		}
	}
}
