package main

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/millrace-go/millrace/internal/program"
)

// latency is how long it took from an append's commit to its being applied: from the moment when Append returned, so
// that the commit was known, until WaitFor told that a projection's transaction with the event had committed.
type latency struct {
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Samples int     `json:"samples"`
}

// String is both figures, for people.
func (l latency) String() string {
	if l.Samples == 0 {
		return "-"
	}
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", l.P50, l.P99)
}

// stopwatch collects samples from many goroutines.
type stopwatch struct {
	mu      sync.Mutex
	samples []time.Duration
}

func (s *stopwatch) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, d)
}

func (s *stopwatch) latency() latency {
	s.mu.Lock()
	sorted := slices.Clone(s.samples)
	s.mu.Unlock()
	slices.Sort(sorted)
	return latency{P50: program.Milliseconds(program.Percentile(sorted, 0.5)), P99: program.Milliseconds(program.Percentile(sorted, 0.99)), Samples: len(sorted)}
}

// rounded keeps three decimals.
func rounded(x float64) float64 { return math.Round(x*1000) / 1000 }
