package chaos_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// ends are the ways in which a process may end: in order, killed by a fault, because it could not start during an
// outage, and by the deadly event.
var ends = []string{inOrder, "signal: killed", "exit status 1", fmt.Sprint("exit status ", deadlyExit)}

// expectedErrors are the errors that nodes may log. The library logs an error only when a person must act, and no fault
// here requires that.
var expectedErrors = []string{
	"node ended",   // it could not start
	"event parked", // the deadly one; the checker of dead letters finds any other
}

// guestRestored is what a node that was frozen or cut off may log while the guest is restored, until it notices that it
// has lost its leases.
const guestRestored = "the tenant was restored or truncated"

// alarms must not stand in a node's log.
var alarms = []string{"\tERROR\t", "DATA RACE", "panic", "fatal error:"}

// misbehaved checks how the processes ended and what they logged.
func (c *cluster) misbehaved() (findings []finding) {
	found := func(format string, args ...any) { findings = append(findings, nodeFinding(format, args...)) }
	for _, n := range c.nodes {
		for _, p := range n.allProcesses() {
			if _, exit := p.end(); !p.alive() && !slices.Contains(ends, exit) {
				found("%s ended with %s", p, exit)
			}
		}
		log, err := os.ReadFile(n.log)
		if err != nil && !os.IsNotExist(err) {
			found("%v", err)
		}
		for line := range strings.Lines(string(log)) {
			contains := func(part string) bool { return strings.Contains(line, part) }
			if slices.ContainsFunc(alarms, contains) && !slices.ContainsFunc(expectedErrors, contains) &&
				!(contains(guestRestored) && contains(guest) && c.duringRestore(line)) {
				found("%s logged: %s", n.name, strings.TrimSpace(line))
			}
		}
	}
	return findings
}

// untilRemoved bounds how long the guest stays as a restore left it whose end a server has lost: it is removed then.
const untilRemoved = 10 * time.Second

// duringRestore reports whether a line was logged during a restore of the guest, or within a second after it. A server
// may have lost the end of the restore. Then the guest has fewer events than its projections have handled, until it is
// removed.
func (c *cluster) duringRestore(line string) bool {
	logged, _, _ := strings.Cut(line, "\t")
	at, err := time.Parse(time.RFC3339, logged)
	c.mu.Lock()
	restores := slices.Clone(c.restores)
	c.mu.Unlock()
	return err == nil && slices.ContainsFunc(restores, func(t trouble) bool {
		return at.After(t.from) && (t.to.IsZero() || at.Before(t.to.Add(time.Second)) ||
			at.Before(t.to.Add(untilRemoved)) && c.mayBeLost(t.from, t.to))
	})
}

func TestLinesDuringARestoreAreFound(t *testing.T) {
	at := func(text string) time.Time {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	c := &cluster{servers: &servers{losses: []loss{{from: at("2026-01-01T10:00:31.5Z"),
		to: at("2026-01-01T10:00:33Z")}}}, restores: []trouble{
		{from: at("2026-01-01T10:00:10.5Z"), to: at("2026-01-01T10:00:12Z")},
		{from: at("2026-01-01T10:00:30Z"), to: at("2026-01-01T10:00:32Z")},
	}}
	for logged, want := range map[string]bool{
		"2026-01-01T10:00:10.400Z": false, "2026-01-01T10:00:11.000Z": true, "2026-01-01T10:00:12.900Z": true,
		"2026-01-01T10:00:13.100Z": false,
		"2026-01-01T10:00:33.100Z": true, "2026-01-01T10:00:42.100Z": false, "no time": false,
	} {
		if got := c.duringRestore(logged + "\tERROR\tn1/1\ttext\n"); got != want {
			t.Errorf("%s: %v", logged, got)
		}
	}
}
