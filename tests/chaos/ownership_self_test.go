package chaos_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/projection"
)

func TestOwnershipCheckerNoticesStolenLeases(t *testing.T) {
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	n := &node{name: "n"}
	a, b := &process{node: n, id: "a"}, &process{node: n, id: "b"}
	of := projection.ID{Tenant: "acme", Name: "ledger"}
	claim := func(ms int, from, to string, epoch int64) change {
		return change{at: at(ms), of: of, from: from, to: to, lastEpoch: epoch - 1, epoch: epoch}
	}
	free := func(ms int, from string, epoch int64) change {
		return change{at: at(ms), of: of, from: from, lastEpoch: epoch, epoch: epoch}
	}
	expired := func(c change) change {
		c.expired = true
		return c
	}
	suspended := func(c change) change {
		c.suspended = true
		return c
	}
	another := func(c change) change {
		c.lease++
		return c
	}
	dead := []trouble{{who: a, what: "killed", from: at(1000), to: at(1000)}}
	for name, test := range map[string]struct {
		changes  []change
		troubles []trouble
		outages  []outage
		gaps     []int // of the takeovers, in ms
		kinds    []string
	}{
		"the first claim is no takeover": {changes: []change{claim(0, "", "a", 1)}},
		"released and claimed": {
			changes: []change{free(500, "a", 1), claim(530, "", "b", 2)}, gaps: []int{30},
		},
		"released and claimed again": {changes: []change{free(500, "a", 1), claim(530, "", "a", 2)}},
		"after a death": {
			changes: []change{claim(1800, "a", "b", 2)}, troubles: dead, gaps: []int{800},
		},
		"after a death, by the heartbeat": {changes: []change{expired(claim(4800, "a", "b", 2))},
			troubles: []trouble{{who: a, what: "frozen", from: at(1000)}}, gaps: []int{3800}},
		"before the death": {
			changes: []change{claim(900, "a", "b", 2)}, troubles: dead, gaps: []int{0}, kinds: []string{kindStolen},
		},
		"long after it": {
			changes: []change{claim(9000, "a", "b", 2)}, troubles: dead, gaps: []int{0}, kinds: []string{kindStolen},
		},
		"from a node that was not struck": {
			changes: []change{claim(1800, "b", "a", 2)}, troubles: dead, gaps: []int{0}, kinds: []string{kindStolen},
		},
		"from a node whose heartbeat expired": {changes: []change{expired(claim(1800, "b", "a", 2))}, gaps: []int{0}},
		"an epoch that stays": {
			changes: []change{{at: at(0), of: of, to: "a", lastEpoch: 3, epoch: 3}}, kinds: []string{kindEpoch},
		},
		"suspended meanwhile": {
			changes: []change{suspended(free(500, "a", 1)), claim(5000, "", "b", 2)},
		},
		"another lease of that name": {changes: []change{free(500, "a", 1), another(claim(530, "", "b", 1))}},
		"during an outage": {changes: []change{claim(5000, "a", "b", 2)}, troubles: []trouble{{who: a, from: at(1000)}},
			outages: []outage{{at(1500), at(4900)}}, gaps: []int{100}},
	} {
		t.Run(name, func(t *testing.T) {
			o := analyze(test.changes, test.troubles, []*process{a, b}, test.outages)
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

func TestNodeIDIsFoundInTheLog(t *testing.T) {
	p := &process{node: &node{name: "n3"}, pid: 615}
	to, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	log := "2026-11-22T00:33:40.011Z\tINFO\tn3/615\tanother line\n" +
		"2026-11-22T00:33:40.012Z\tINFO\tn3/615\truntime started\t{\"node\": \"c30c\", \"projections\": [\"audit\"]}\nwithout an end"
	p.copyLog(to, strings.NewReader(log))
	if got := p.identity(); got != "c30c" {
		t.Errorf("the id is %q, want c30c", got)
	}
	if content, err := os.ReadFile(to.Name()); err != nil || string(content) != log {
		t.Errorf("the file has %q (%v), want %q", content, err, log)
	}
}
