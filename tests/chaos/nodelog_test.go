package chaos_test

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
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

// started is what a process logs with its node's id.
var started = regexp.MustCompile(`\t(\S+)\truntime started\t\{"node": "([^"]+)"`)

// learnFromLog finds the ids of nodes whose process ended before it could tell: the deadly event may be its first.
func (n *node) learnFromLog() error {
	log, err := os.ReadFile(n.log)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	ids := make(map[string]string)
	for _, match := range started.FindAllStringSubmatch(string(log), -1) {
		ids[match[1]] = match[2]
	}
	for _, l := range n.allLives() {
		l.mu.Lock()
		l.id = cmp.Or(l.id, ids[l.String()])
		l.mu.Unlock()
	}
	return nil
}

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
