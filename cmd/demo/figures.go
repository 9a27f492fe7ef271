package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/internal/report"
)

// phase is what a run is doing.
type phase string

const (
	starting   phase = "starting"
	loading    phase = "appending"
	catchingUp phase = "catching up"
	replaying  phase = "replaying parked events"
	finished   phase = "all applied"
)

// figures are the figures that a run shows. Rates are averages since the first append. They do not change after the
// projections have caught up, so that the last frame and the summary agree.
type figures struct {
	at          time.Duration // since the first append
	phase       phase
	appended    int64
	total       int64
	appendRate  float64
	applyRate   float64 // of all projections together
	projections []projectionFigures
	news        string
}

type projectionFigures struct {
	name                    string
	applied, behind, parked int64
	rate                    float64
	state, problem          string
}

func newFigures(total int64) figures {
	f := figures{total: total, phase: starting}
	for _, m := range readModels {
		f.projections = append(f.projections, projectionFigures{name: m.name})
	}
	return f
}

// observe takes the projections' figures from a status.
func (f *figures) observe(status admin.Status) {
	for i := range f.projections {
		p := &f.projections[i]
		for _, s := range status.Projections {
			if s.ID.Name == p.name {
				p.applied, p.behind, p.parked = s.Applied, s.Behind, s.Parked
				p.state, p.problem = string(s.State), report.Problem(s)
			}
		}
	}
}

// measure computes the rates over these times.
func (f *figures) measure(appending, applying time.Duration) {
	f.appendRate, f.applyRate = perSecond(f.appended, appending), 0
	for i := range f.projections {
		p := &f.projections[i]
		p.rate = perSecond(p.applied, applying)
		f.applyRate += p.rate
	}
}

// movement grows with any progress of a run.
func (f *figures) movement() int64 {
	n := f.appended
	for _, p := range f.projections {
		n += p.applied + p.parked
	}
	return n
}

// line returns all figures in one line.
func (f *figures) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%6.1fs %s: appended %d of %d, %.0f/s", f.at.Seconds(), f.phase, f.appended, f.total, f.appendRate)
	for _, p := range f.projections {
		fmt.Fprintf(&b, "; %s applied %d, behind %d, %.0f/s, parked %d", p.name, p.applied, p.behind, p.rate, p.parked)
		if p.problem != "" {
			fmt.Fprintf(&b, " (%s)", console.OneLine(p.problem))
		}
	}
	if f.news != "" {
		b.WriteString("; " + f.news)
	}
	return b.String()
}

// table returns all figures for a terminal of at least 60 columns.
func (f *figures) table() []string {
	lines := []string{
		fmt.Sprintf("%.1f s, %s", f.at.Seconds(), f.phase),
		fmt.Sprintf("appended %d of %d, %.0f events/s", f.appended, f.total, f.appendRate),
		fmt.Sprintf("applied %.0f events/s, the sum of four projections", f.applyRate),
		"",
		fmt.Sprintf("%-14s %7s %7s %6s %8s  %s", "projection", "applied", "behind", "parked", "events/s", "state"),
	}
	var notes []string
	for i, p := range f.projections {
		lines = append(lines, fmt.Sprintf("%-14s %7d %7d %6d %8.0f  %s",
			p.name, p.applied, p.behind, p.parked, p.rate, p.state))
		if eventType := readModels[i].eventType; eventType != "" {
			notes = append(notes, fmt.Sprintf("%s handles only events of type %s", p.name, eventType))
		}
		if p.problem != "" {
			notes = append(notes, p.name+", "+p.problem)
		}
	}
	lines = append(append(lines, ""), notes...)
	if f.news != "" {
		lines = append(lines, f.news)
	}
	return lines
}

func perSecond(n int64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(n) / took.Seconds()
}
