package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millrace-go/millrace/internal/program"
)

// median returns the median.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ratio returns the ratio of a figure to that of the first line, both as printed, and the lowest and the highest ratio of a round.
func ratio(figure, first float64, rounds, firstRounds []float64) string {
	ratios := make([]float64, len(rounds))
	for i := range rounds {
		ratios[i] = rounds[i] / firstRounds[i]
	}
	return fmt.Sprintf("ratio %.2f (rounds %.2f to %.2f)", figure/first, slices.Min(ratios), slices.Max(ratios))
}

// showSpeeds prints the median of the rounds of each contender.
func showSpeeds(out io.Writer, unit string, contenders []contender[float64], results [][]float64) error {
	var b strings.Builder
	first := math.Round(median(results[0]))
	for i, s := range contenders {
		speed := math.Round(median(results[i]))
		line := fmt.Sprintf("%-36s %8.0f %-32s", s.name, speed, unit)
		if i > 0 {
			line += "     " + ratio(speed, first, results[i], results[0])
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// showLatencies prints the percentiles of all samples of each contender, and the ratio of one of them.
func showLatencies(out io.Writer, of float64, contenders []contender[[]time.Duration], results [][][]time.Duration) error {
	var b strings.Builder
	first, firstRounds := percentile(slices.Concat(results[0]...), of), percentiles(results[0], of)
	for i, s := range contenders {
		all := slices.Concat(results[i]...)
		slices.Sort(all)
		fmt.Fprintf(&b, "%-36s p50 %8.3f ms   p99 %8.3f ms   ", s.name, program.Milliseconds(program.Percentile(all, 0.5)), program.Milliseconds(program.Percentile(all, 0.99)))
		if i == 0 {
			fmt.Fprintf(&b, "%d probes\n", len(all))
			continue
		}
		fmt.Fprintf(&b, "p%.0f %s\n", 100*of, ratio(percentile(all, of), first, percentiles(results[i], of), firstRounds))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func percentile(samples []time.Duration, of float64) float64 {
	return program.Milliseconds(program.Percentile(slices.Sorted(slices.Values(samples)), of))
}

func percentiles(rounds [][]time.Duration, of float64) []float64 {
	all := make([]float64, len(rounds))
	for i := range rounds {
		all[i] = percentile(rounds[i], of)
	}
	return all
}
