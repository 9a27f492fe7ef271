package chaos_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// ends are the ways in which a process may end: in order, killed by a fault, because it could not start during an outage, and
// by the deadly event.
var ends = []string{inOrder, "signal: killed", "exit status 1", fmt.Sprint("exit status ", deadlyExit)}

// expectedErrors are the errors that nodes may log. The library logs an error only when a person must act, and no fault here
// requires that.
var expectedErrors = []string{
	"node ended",   // it could not start
	"event parked", // the deadly one; the checker of dead letters finds any other
}

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
			if slices.ContainsFunc(alarms, contains) && !slices.ContainsFunc(expectedErrors, contains) {
				found("%s logged: %s", n.name, strings.TrimSpace(line))
			}
		}
	}
	return findings
}
