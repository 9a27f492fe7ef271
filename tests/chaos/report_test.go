package chaos_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// report is how a test ended.
type report struct {
	appended, applied           int
	lost                        int // with a server, though acknowledged
	replayed, behind, discarded int // of what was parked
	ownership                   ownership
	struck                      map[string]int
	findings                    []finding
}

// add takes another round in.
func (r *report) add(other report) {
	r.appended += other.appended
	r.applied += other.applied
	r.lost += other.lost
	r.replayed += other.replayed
	r.behind += other.behind
	r.discarded += other.discarded
	r.ownership.takeovers = append(r.ownership.takeovers, other.ownership.takeovers...)
	r.findings = append(r.findings, other.findings...)
	if r.struck == nil {
		r.struck = make(map[string]int)
	}
	for name, n := range other.struck {
		r.struck[name] += n
	}
}

// String is a table for people.
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
	}{{"given back and claimed by another", true}, {"taken over from an owner that was gone", false}} {
		some := r.ownership.some(way.released)
		row("leases "+way.name, "%6d", len(some))
		row("  without an owner for, median and longest", "%6v, %v", median(some).Round(time.Millisecond), longest(some).gap.Round(time.Millisecond))
	}
	row("events appended", "%6d", r.appended)
	row("events that were acknowledged, and lost with a server", "%6d", r.lost)
	row("events applied", "%6d", r.applied)
	row("  of them parked first, and replayed", "%6d", r.replayed)
	row("events that were parked behind one of their stream", "%6d", r.behind)
	row("events discarded", "%6d", r.discarded)
	verdict := "exact: nothing lost, doubled, left parked or out of order"
	if len(r.findings) > 0 {
		verdict = fmt.Sprintf("%d findings", len(r.findings))
	}
	row("verdict", "%s", verdict)
	return text.String()
}

// mostFindings bounds what is printed of findings.
const mostFindings = 30

// verify fails the test for every finding.
func (c *cluster) verify(r report) {
	c.t.Helper()
	for i, f := range r.findings {
		if i == mostFindings {
			c.t.Errorf("and %d more", len(r.findings)-i)
			break
		}
		c.t.Error(f)
	}
}

// tell prints what is needed to understand a failure and to repeat it.
func (c *cluster) tell() {
	most := 32 << 10
	if *chaosFor != 0 {
		most <<= 6 // whoever runs it for long reads its output from a file
	}
	c.t.Logf("to repeat it: %s", c.repeat)
	if c.schedule != "" {
		c.t.Logf("schedule:\n%s", c.schedule)
	}
	for _, n := range c.nodes {
		for _, l := range n.allLives() {
			c.t.Logf("process %s is node %q; it began at %s and ended at %s with %q", l, l.identity(), l.started.Format(clock), l.endedAt().Format(clock), l.exited())
		}
		c.t.Logf("log of node %s:\n%s", n.name, tail(n.log, most))
	}
	c.mu.Lock()
	for _, t := range c.troubles {
		c.t.Logf("%s was %s from %s to %s", t.who, t.what, t.from.Format(clock), t.to.Format(clock))
	}
	c.mu.Unlock()
	c.t.Logf("log of the server:\n%s", c.server().Log())
}

// tail is the end of a file.
func tail(path string, most int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.ToValidUTF8(string(content[max(0, len(content)-most):]), "")
}
