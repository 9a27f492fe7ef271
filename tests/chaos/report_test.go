package chaos_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// report is the result of a test.
type report struct {
	appended, applied            int
	lost                         int // acknowledged, and lost with a server
	replayed, blocked, discarded int // of the parked events
	ownership                    ownership
	struck                       map[string]int
	findings                     []finding
}

// add adds another round.
func (r *report) add(other report) {
	r.appended += other.appended
	r.applied += other.applied
	r.lost += other.lost
	r.replayed += other.replayed
	r.blocked += other.blocked
	r.discarded += other.discarded
	r.ownership.takeovers = append(r.ownership.takeovers, other.ownership.takeovers...)
	r.found(other.findings...)
	if r.struck == nil {
		r.struck = make(map[string]int)
	}
	for name, n := range other.struck {
		r.struck[name] += n
	}
}

func (r *report) found(findings ...finding) { r.findings = append(r.findings, findings...) }

// String returns a table.
func (r report) String() string {
	var text strings.Builder
	faults := 0
	for _, name := range slices.Sorted(maps.Keys(r.struck)) {
		fmt.Fprintf(&text, "  %-54s %6d\n", name, r.struck[name])
		faults += r.struck[name]
	}
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&text, "%-56s "+format+"\n", append([]any{name}, args...)...)
	}
	row("faults", "%6d", faults)
	for _, way := range []struct {
		name     string
		released bool
	}{{"released and claimed by another node", true}, {"taken over without a release", false}} {
		some := r.ownership.some(way.released)
		row("leases "+way.name, "%6d", len(some))
		row("  time without an owner, median and longest", "%6v, %v", median(some).Round(time.Millisecond),
			longest(some).gap.Round(time.Millisecond))
	}
	row("events appended", "%6d", r.appended)
	row("events acknowledged, and lost with a server", "%6d", r.lost)
	row("events applied", "%6d", r.applied)
	row("  of them parked before, and replayed", "%6d", r.replayed)
	row("events parked because of an earlier one of their stream", "%6d", r.blocked)
	row("events discarded", "%6d", r.discarded)
	result := "exact: nothing lost, doubled, left parked or out of order"
	if len(r.findings) > 0 {
		result = fmt.Sprintf("%d findings", len(r.findings))
	}
	row("result", "%s", result)
	return text.String()
}

// mostFindings is how many findings are printed.
const mostFindings = 30

// verify fails the test for every finding.
func (c *cluster) verify(r report) {
	c.t.Helper()
	for i, f := range r.findings {
		if i == mostFindings {
			c.failed(fmt.Sprintf("and %d more", len(r.findings)-i))
			break
		}
		c.failed(f)
	}
}

// dump prints the schedule, the processes and the logs, and how to repeat the test.
func (c *cluster) dump() {
	most := 32 << 10
	if *chaosFor != 0 {
		most <<= 6 // the output of a long run goes to a file
	}
	c.t.Logf("to repeat it: %s", c.options.repeat)
	if c.schedule != "" {
		c.t.Logf("schedule:\n%s", c.schedule)
	}
	for _, n := range c.nodes {
		for _, p := range n.allProcesses() {
			at, exit := p.end()
			c.t.Logf("process %s is node %q; it started at %s and ended at %s with %q", p, p.identity(),
				p.started.Format(clock), at.Format(clock), exit)
		}
		c.t.Logf("log of node %s:\n%s", n.name, tail(n.log, most))
	}
	c.mu.Lock()
	for _, t := range c.troubles {
		c.t.Logf("%s was %s from %s to %s", t.who, t.what, t.from.Format(clock), t.to.Format(clock))
	}
	c.mu.Unlock()
	c.t.Logf("log of the server:\n%s", c.server().Log())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t.Logf("%s failed, from seed %d:\n%s", c.t.Name(), c.options.seed, strings.Join(c.failures, "\n"))
}

// tail returns the end of a file.
func tail(path string, most int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.ToValidUTF8(string(content[max(0, len(content)-most):]), "")
}
