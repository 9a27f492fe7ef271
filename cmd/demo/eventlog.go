package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/program"
)

// rateEvery is how often the event log says how many events were applied.
const rateEvery = 3 * time.Second

// eventLog turns one status after the other into lines on what has changed.
type eventLog struct {
	title string
	node  string // empty until the runtime has said its id
	last  map[string]millrace.ProjectionStatus
	away  bool // the last status could not be read

	applied map[string]int64 // at the last line on rates
	rated   time.Time        // when that was
}

func newEventLog(title string, now time.Time) *eventLog {
	return &eventLog{title: title, last: make(map[string]millrace.ProjectionStatus), applied: make(map[string]int64), rated: now}
}

// lines returns what has changed. Where err is not nil there is no status.
func (l *eventLog) lines(now time.Time, status millrace.Status, err error) (lines []string) {
	if err != nil {
		if !l.away {
			l.away = true
			lines = append(lines, "the status cannot be read: "+program.OneLine(err.Error()))
		}
		return lines
	}
	if l.away {
		l.away = false
		lines = append(lines, "the status can be read again")
	}
	if l.node == "" {
		if l.node = status.Node; l.node == "" {
			l.remember(status) // which projections are its own is not known yet
			return lines
		}
		lines = append(lines, fmt.Sprintf("node %s (%s), %s", short(l.node), l.node, l.title))
	}
	lines = append(lines, l.moves(status)...)
	lines = append(lines, l.troubles(status)...)
	lines = append(lines, l.rates(now, status)...)
	l.remember(status)
	return lines
}

func (l *eventLog) remember(status millrace.Status) {
	for _, p := range status.Projections {
		l.last[p.ID.Name] = p
	}
}

// moves says which projections came and went, and which run here now.
func (l *eventLog) moves(status millrace.Status) (lines []string) {
	var order, runs []string
	moved := make(map[string][]string)
	for _, p := range status.Projections {
		name, before := p.ID.Name, l.last[p.ID.Name]
		var what string
		switch {
		case p.Owner == l.node && before.Owner == l.node && p.Epoch != before.Epoch:
			what = "claimed again: %s"
		case p.Owner == l.node && before.Owner != "" && before.Owner != l.node:
			what = "took over from " + short(before.Owner) + ": %s"
		case p.Owner == l.node && before.Owner == "":
			what = "claimed: %s"
		case p.Owner == "" && before.Owner == l.node:
			what = "gave up: %s"
		case p.Owner != l.node && before.Owner == l.node:
			what = "went to " + short(p.Owner) + ": %s"
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
	return append(lines, fmt.Sprintf("runs %d of %d now: %s", len(runs), len(status.Projections), strings.Join(runs, ", ")))
}

// troubles says, once, what keeps its projections from proceeding.
func (l *eventLog) troubles(status millrace.Status) (lines []string) {
	for _, p := range status.Projections {
		if p.Owner != l.node {
			continue
		}
		if now := trouble(p); now != "" && now != trouble(l.last[p.ID.Name]) {
			lines = append(lines, p.ID.Name+", "+program.OneLine(now))
		}
	}
	return lines
}

// rates says from time to time how many events were applied here, if any.
func (l *eventLog) rates(now time.Time, status millrace.Status) []string {
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

// short is a part of a node's id that identifies it among a few.
func short(id string) string { return id[:min(len(id), 8)] }
