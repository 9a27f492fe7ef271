package main

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/console"
)

// summary is the result of a run. Its JSON form is the last line of -json.
type summary struct {
	// Store is "sqlite" or "postgres".
	Store   string `json:"store"`
	Events  int64  `json:"events"`
	Streams int64  `json:"streams"`
	// Seconds is the time from the first append until everything was applied.
	Seconds float64 `json:"seconds"`
	// AppendPerSecond is over the time from the first append to the last.
	AppendPerSecond float64 `json:"append_per_second"`
	// AppliedPerSecond is the sum of all projections, over the time from the first append until they had caught up.
	AppliedPerSecond float64             `json:"applied_per_second"`
	Projections      []projectionSummary `json:"projections"`
	DeadLetters      deadLetterSummary   `json:"dead_letters"`
	Verified         bool                `json:"verified"`
}

type projectionSummary struct {
	Name       string `json:"name"`
	Checkpoint int64  `json:"checkpoint"`
	// Events is how many of the events are of the types that the projection handles.
	Events  int64 `json:"events"`
	Applied int64 `json:"applied"`
	// Parked is how many are parked at the end.
	Parked   int64 `json:"parked"`
	Replayed int64 `json:"replayed"`
	Skipped  int64 `json:"skipped"`
	// OutOfOrder is how many rows differ because an event was replayed after later events of its stream.
	OutOfOrder int64 `json:"out_of_order"`
}

// summary returns the summary. The runtime must have stopped.
func (r *run) summary(status admin.Status, v checkResult) summary {
	s := summary{
		Store:            r.database.kind(),
		Events:           v.events,
		Streams:          v.streams,
		Seconds:          rounded(r.took.Seconds()),
		AppendPerSecond:  rounded(r.figures.appendRate),
		AppliedPerSecond: rounded(r.figures.applyRate),
		DeadLetters:      v.deadLetters(),
		Verified:         len(v.wrong) == 0,
	}
	for i, m := range v.models {
		p := projectionSummary{Name: m.name, Events: m.events, Applied: r.figures.projections[i].applied,
			Parked:   m.deadLetters.Left,
			Replayed: m.deadLetters.Replayed, Skipped: m.skipped, OutOfOrder: m.reordered}
		for _, found := range status.Projections {
			if found.ID.Name == m.name {
				p.Checkpoint = found.Checkpoint
			}
		}
		s.Projections = append(s.Projections, p)
	}
	return s
}

// print prints the summary for people and, on request, as a JSON object.
func (s summary) print(view *console.View, v checkResult, kept string, asJSON bool) error {
	lines := append([]string{"",
		fmt.Sprintf("%d events in %d streams in %.1f s", s.Events, s.Streams, s.Seconds),
		fmt.Sprintf("appended %.0f events/s, one event in each append", s.AppendPerSecond),
		fmt.Sprintf("applied %.0f events/s, the sum of four projections", s.AppliedPerSecond), ""}, v.lines()...)
	if kept != "" {
		lines = append(lines, "the tables are kept; remove them with: "+kept)
	}
	if err := view.Print(lines...); err != nil || !asJSON {
		return err
	}
	return json.NewEncoder(view.Out).Encode(s)
}

// rounded rounds to three decimals.
func rounded(x float64) float64 { return math.Round(x*1000) / 1000 }
