package chaos_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// ends are the ways in which a process may end: in order, by a signal of ours, because it could not begin while the server
// was away, and by the deadly event.
var ends = []string{"<nil>", "signal: killed", "exit status 1", fmt.Sprint("exit status ", deadlyExit)}

// expectedErrors are what nodes may log as errors. An error of the library's means that a person is needed, and no fault
// here is one that does not mend itself.
var expectedErrors = []string{
	"node ended",   // it could not begin
	"event parked", // the deadly one; any other is found among the dead letters
}

// alarms are what must not stand in a node's log.
var alarms = []string{"\tERROR\t", "DATA RACE", "panic", "fatal error:"}

// misbehaved looks at how the processes ended, and at what they logged.
func (c *cluster) misbehaved() (findings []finding) {
	for _, n := range c.nodes {
		for _, l := range n.allLives() {
			if exit := l.exited(); !l.alive() && !slices.Contains(ends, exit) {
				findings = append(findings, finding{kind: kindNode, detail: fmt.Sprintf("%s ended with %s", l, exit)})
			}
		}
		log, err := os.ReadFile(n.log)
		if err != nil && !os.IsNotExist(err) {
			findings = append(findings, finding{kind: kindNode, detail: err.Error()})
		}
		for line := range strings.Lines(string(log)) {
			holds := func(part string) bool { return strings.Contains(line, part) }
			if slices.ContainsFunc(alarms, holds) && !slices.ContainsFunc(expectedErrors, holds) {
				findings = append(findings, finding{kind: kindNode, detail: fmt.Sprintf("%s logged: %s", n.name, strings.TrimSpace(line))})
			}
		}
	}
	return findings
}
