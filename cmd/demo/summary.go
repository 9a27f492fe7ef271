package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/millrace-go/millrace/internal/program"
)

// summary is what a run came to. Its JSON form is the last line of -json.
type summary struct {
	Events  int64 `json:"events"`
	Streams int64 `json:"streams"`
	// Seconds are from the first append until the last event was applied by all that it concerns.
	Seconds float64 `json:"seconds"`
	// AppendPerSecond is over the events that were appended concurrently.
	AppendPerSecond float64 `json:"append_per_second"`
	// AppliedPerSecond adds up what the four projections applied of these events, over the time from the first append
	// until they had caught up.
	AppliedPerSecond float64 `json:"applied_per_second"`
	// Latency is that of the last events, which are appended one at a time: what a wake-up costs, with no queue.
	Latency latency `json:"latency_ms"`
	// LatencyUnderLoad is that of a sample of the events that were appended concurrently: mostly queueing, unless -rate
	// leaves room.
	LatencyUnderLoad latency             `json:"latency_under_load_ms"`
	Projections      []projectionSummary `json:"projections"`
	DeadLetters      letterSummary       `json:"dead_letters"`
	Verified         bool                `json:"verified"`
}

type projectionSummary struct {
	Name       string `json:"name"`
	Checkpoint int64  `json:"checkpoint"`
	Applied    int64  `json:"applied"`
	// Parked is how many are parked at the end.
	Parked   int64 `json:"parked"`
	Replayed int64 `json:"replayed"`
	Skipped  int64 `json:"skipped"`
	// OutOfOrder is how many rows show that an event was replayed when later ones of its stream had been applied.
	OutOfOrder int64 `json:"out_of_order"`

	rows  int64
	wrong bool
}

// letterSummary is what became of the events that were put aside.
type letterSummary struct {
	// Parked is how many were parked at any time; Behind is how many of those did not fail, but followed one of their stream.
	Parked int64 `json:"parked"`
	Behind int64 `json:"behind"`
	// Replayed is how many were applied by a replay, Left how many are parked at the end.
	Replayed int64 `json:"replayed"`
	Left     int64 `json:"left"`
}

// print writes the summary for people and, if asked to, the JSON object behind it.
func (s summary) print(out io.Writer, v verdict, kept []string, asJSON bool) error {
	fmt.Fprintf(out, "\n%d events in %d streams in %.1f s\n", s.Events, s.Streams, s.Seconds)
	fmt.Fprintf(out, "appended  %8.0f events/s, each an append of its own\n", s.AppendPerSecond)
	fmt.Fprintf(out, "applied   %8.0f events/s, by four projections together\n", s.AppliedPerSecond)
	fmt.Fprintf(out, "commit to applied, one at a time  %s (%d samples)\n", s.Latency, s.Latency.Samples)
	fmt.Fprintf(out, "commit to applied, under load     %s (%d samples; queueing included)\n\n", s.LatencyUnderLoad,
		s.LatencyUnderLoad.Samples)
	fmt.Fprintf(out, "%-16s %10s %10s %8s %8s %8s %8s   against a plain SQL count over the events\n", "projection", "checkpoint",
		"applied", "parked", "replayed", "skipped", "rows")
	for _, p := range s.Projections {
		fmt.Fprintf(out, "%-16s %10d %10d %8d %8d %8d %8d   %s\n", p.Name, p.Checkpoint, p.Applied, p.Parked, p.Replayed, p.Skipped, p.rows, outcome(p.wrong, p.OutOfOrder))
	}
	v.explain(out)
	_, err := fmt.Fprintf(out, "\n%s\n", v.sentence())
	if err == nil && len(kept) > 0 {
		_, err = fmt.Fprintf(out, "kept for you to look at; remove it with: %s\n", program.Drop(kept))
	}
	if err == nil && asJSON {
		err = json.NewEncoder(out).Encode(s)
	}
	return err
}
