package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/program"
)

// rateEvery is how far apart the lines on what was applied are.
const rateEvery = 3 * time.Second

// journal turns looks at the status into lines on what has changed between them.
type journal struct {
	title string
	node  string // empty until the runtime has said its id
	last  map[string]millrace.ProjectionStatus
	away  bool // the database, at the last look

	applied map[string]int64 // as of the last line on it
	rated   time.Time
}

func newJournal(title string, now time.Time) *journal {
	return &journal{title: title, last: make(map[string]millrace.ProjectionStatus), applied: make(map[string]int64), rated: now}
}

// look returns what is to be told. Where err is not nil there is no status.
func (j *journal) look(now time.Time, status millrace.Status, err error) (lines []string) {
	if err != nil {
		if !j.away {
			j.away = true
			lines = append(lines, "cannot see the projections: "+program.OneLine(err.Error()))
		}
		return lines
	}
	if j.away {
		j.away = false
		lines = append(lines, "sees the projections again")
	}
	if j.node == "" {
		if j.node = status.Node; j.node == "" {
			j.remember(status) // it is not known yet which are its own
			return lines
		}
		lines = append(lines, fmt.Sprintf("node %s (%s), %s", short(j.node), j.node, j.title))
	}
	lines = append(lines, j.moves(status)...)
	lines = append(lines, j.troubles(status)...)
	lines = append(lines, j.rates(now, status)...)
	j.remember(status)
	return lines
}

func (j *journal) remember(status millrace.Status) {
	for _, p := range status.Projections {
		j.last[p.ID.Name] = p
	}
}

// moves tells which projections came and went, those of the same kind in one line, and which it has now.
func (j *journal) moves(status millrace.Status) (lines []string) {
	var order, runs []string
	moved := make(map[string][]string)
	for _, p := range status.Projections {
		name, before := p.ID.Name, j.last[p.ID.Name]
		var what string
		switch {
		case p.Owner == j.node && before.Owner == j.node && p.Epoch != before.Epoch:
			what = "claimed again: %s"
		case p.Owner == j.node && before.Owner != "" && before.Owner != j.node:
			what = "took over from " + short(before.Owner) + ": %s"
		case p.Owner == j.node && before.Owner == "":
			what = "claimed: %s"
		case p.Owner == "" && before.Owner == j.node:
			what = "gave up: %s"
		case p.Owner != j.node && before.Owner == j.node:
			what = "went to " + short(p.Owner) + ": %s"
		}
		if what != "" {
			if moved[what] == nil {
				order = append(order, what)
			}
			moved[what] = append(moved[what], fmt.Sprintf("%s (epoch %d)", name, p.Epoch))
		}
		if p.Owner == j.node {
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

// troubles tells what keeps its projections from going on, once.
func (j *journal) troubles(status millrace.Status) (lines []string) {
	for _, p := range status.Projections {
		if p.Owner != j.node {
			continue
		}
		if now := trouble(p); now != "" && now != trouble(j.last[p.ID.Name]) {
			lines = append(lines, p.ID.Name+", "+program.OneLine(now))
		}
	}
	return lines
}

// rates tells from time to time how many events were applied here, if there were any.
func (j *journal) rates(now time.Time, status millrace.Status) []string {
	took := now.Sub(j.rated)
	if took < rateEvery {
		return nil
	}
	j.rated = now
	var sum int64
	var each []string
	for _, p := range status.Projections {
		name := p.ID.Name
		n := p.Applied - j.applied[name]
		if n <= 0 { // also where it runs elsewhere, of which this node counts nothing
			continue
		}
		j.applied[name] = p.Applied
		sum += n
		each = append(each, fmt.Sprintf("%s %.0f", name, perSecond(n, took.Seconds())))
	}
	if sum == 0 {
		return nil
	}
	return []string{fmt.Sprintf("applied %.0f events/s: %s", perSecond(sum, took.Seconds()), strings.Join(each, ", "))}
}

// short is enough of a node's id to tell it from others.
func short(id string) string { return id[:min(len(id), 8)] }
