package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/internal/report"
)

// rateEvery is how often the event log has a line with rates.
const rateEvery = 3 * time.Second

// eventLog turns a sequence of statuses into lines that say what has changed.
type eventLog struct {
	title      string
	standsBy   bool   // the node runs no projections, and waits for the end of another node
	owner      string // the node that it waits for
	node       string // empty until the runtime has an id
	last       map[string]admin.ProjectionStatus
	unreadable bool // the last status could not be read

	applied map[string]int64 // at the last line with rates
	rated   time.Time        // when that was
}

func newEventLog(title string, now time.Time) *eventLog {
	return &eventLog{
		title: title, last: make(map[string]admin.ProjectionStatus), applied: make(map[string]int64), rated: now,
	}
}

// lines returns what has changed. If err is not nil, status is not valid.
func (l *eventLog) lines(now time.Time, status admin.Status, err error) (lines []string) {
	if err != nil {
		if !l.unreadable {
			l.unreadable = true
			lines = append(lines, "the status cannot be read: "+console.OneLine(err.Error()))
		}
		return lines
	}
	if l.unreadable {
		l.unreadable = false
		lines = append(lines, "the status can be read again")
	}
	if l.node == "" {
		l.node = status.Node
		if l.node == "" {
			l.remember(status) // its own projections are not known yet
			return lines
		}
		lines = append(lines, fmt.Sprintf("node %s (%s), %s", report.Short(l.node), l.node, l.title))
	}
	lines = append(append(lines, l.ownershipChanges(status)...), l.standby(status)...)
	lines = append(lines, l.problems(status)...)
	lines = append(lines, l.rates(now, status)...)
	l.remember(status)
	return lines
}

func (l *eventLog) remember(status admin.Status) {
	for _, p := range status.Projections {
		l.last[p.ID.Name] = p
	}
}

// ownershipChanges returns which projections the node claimed and released, and which it runs now.
func (l *eventLog) ownershipChanges(status admin.Status) (lines []string) {
	var order, runs []string
	moved := make(map[string][]string)
	for _, p := range status.Projections {
		name, before := p.ID.Name, l.last[p.ID.Name]
		var what string
		switch {
		case p.Owner == l.node && before.Owner == l.node && p.Epoch != before.Epoch:
			what = "claimed again: %s"
		case p.Owner == l.node && before.Owner != "" && before.Owner != l.node:
			what = "took over from " + report.Short(before.Owner) + ": %s"
		case p.Owner == l.node && before.Owner == "":
			what = "claimed: %s"
		case p.Owner == "" && before.Owner == l.node:
			what = "released: %s"
		case p.Owner != l.node && before.Owner == l.node:
			what = "taken over by " + report.Short(p.Owner) + ": %s"
		}
		if what != "" {
			if moved[what] == nil {
				order = append(order, what)
			}
			moved[what] = append(moved[what], fmt.Sprintf("%s (epoch %d)", name, p.Epoch))
		}
		if p.Owner == l.node {
			runs = append(runs, name)
		}
	}
	if len(order) == 0 {
		return nil
	}
	for _, what := range order {
		lines = append(lines, fmt.Sprintf(what, strings.Join(moved[what], ", ")))
	}
	if len(runs) == 0 {
		return append(lines, "runs nothing now")
	}
	return append(lines, fmt.Sprintf("runs %d of %d now: %s",
		len(runs), len(status.Projections), strings.Join(runs, ", ")))
}

// standby returns a line about the node that runs the projections, if this node stands by for it. It returns the line
// once for each such node.
func (l *eventLog) standby(status admin.Status) []string {
	owner := ""
	for _, p := range status.Projections {
		if p.Owner != "" && p.Owner != l.node && p.State != admin.StateNotOwned && p.State != admin.StateUnregistered {
			owner = p.Owner
		}
	}
	runsSome := slices.ContainsFunc(status.Projections,
		func(p admin.ProjectionStatus) bool { return p.Owner == l.node })
	if !l.standsBy || runsSome || owner == "" || owner == l.owner {
		return nil
	}
	l.owner = owner
	return []string{"stands by until node " + report.Short(owner) + " ends"}
}

// problems returns, once, what keeps projections from making progress.
func (l *eventLog) problems(status admin.Status) (lines []string) {
	for _, p := range status.Projections {
		if p.Owner != l.node {
			continue
		}
		if now := report.Problem(p); now != "" && now != report.Problem(l.last[p.ID.Name]) {
			lines = append(lines, p.ID.Name+", "+console.OneLine(now))
		}
	}
	return lines
}

// rates returns from time to time how many events this node applied, if any.
func (l *eventLog) rates(now time.Time, status admin.Status) []string {
	took := now.Sub(l.rated)
	if took < rateEvery {
		return nil
	}
	l.rated = now
	var sum int64
	var each []string
	for _, p := range status.Projections {
		name := p.ID.Name
		n := p.Applied - l.applied[name]
		if n <= 0 { // the projection may run elsewhere: this node counts only its own
			continue
		}
		l.applied[name] = p.Applied
		sum += n
		each = append(each, fmt.Sprintf("%s %.0f", name, perSecond(n, took)))
	}
	if sum == 0 {
		return nil
	}
	return []string{fmt.Sprintf("applied %.0f events/s: %s", perSecond(sum, took), strings.Join(each, ", "))}
}
