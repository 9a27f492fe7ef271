package main

import (
	"fmt"
	"time"

	"github.com/millrace-go/millrace"
)

// phase says what a run is doing.
type phase string

const (
	loading    phase = "appending concurrently"
	settling   phase = "catching up"
	oneAtATime phase = "appending one at a time"
	replaying  phase = "replaying what is parked"
	finished   phase = "all applied"
)

// figures are one look at a run.
type figures struct {
	at          time.Duration // since the first append
	phase       phase
	appended    int64
	total       int64
	rate        float64 // appended per second since the look before
	projections []projectionFigures
	load, rest  latency
	news        string // what has happened that figures do not tell
}

type projectionFigures struct {
	name            string
	applied, behind int64
	parked          int64
	rate            float64 // applied per second since the look before
	trouble         string  // what keeps it from going on, empty where nothing does
}

// look takes the next figures: the counts are given, the rates come from the look before.
func (f figures) look(at time.Duration, phase phase, appended int64, status millrace.Status) figures {
	next := figures{at: at, phase: phase, appended: appended, total: f.total}
	seconds := (at - f.at).Seconds()
	next.rate = perSecond(appended-f.appended, seconds)
	for i, m := range readModels {
		p := projectionFigures{name: m.name}
		for _, s := range status.Projections {
			if s.ID.Name == m.name {
				p.applied, p.behind, p.parked = s.Applied, s.Behind, s.Parked
				p.trouble = trouble(s)
			}
		}
		var before int64
		if i < len(f.projections) {
			before = f.projections[i].applied
		}
		p.rate = perSecond(p.applied-before, seconds)
		next.projections = append(next.projections, p)
	}
	return next
}

// trouble is empty where all goes well. The reason that status gives may be that of an event that is long parked.
func trouble(s millrace.ProjectionStatus) string {
	switch {
	case s.FailingPosition > 0:
		return fmt.Sprintf("position %d, attempt %d: %s", s.FailingPosition, s.Attempts, s.Reason)
	case s.Reason != "" && s.State != millrace.StateLive && s.State != millrace.StateCatchUp:
		return s.State + ": " + s.Reason
	}
	return ""
}

func perSecond(n int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

// moved tells whether anything went on since the look before.
func (f figures) moved(before figures) bool {
	if f.appended != before.appended || len(f.projections) != len(before.projections) {
		return true
	}
	for i, p := range f.projections {
		if p.applied != before.projections[i].applied || p.parked != before.projections[i].parked {
			return true
		}
	}
	return false
}
