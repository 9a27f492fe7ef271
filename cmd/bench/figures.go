package main

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/millrace-go/millrace/internal/program"
)

// median returns the median. It is NaN if one of the values is.
func median(values []float64) float64 {
	if slices.ContainsFunc(values, math.IsNaN) {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// spread returns the lowest and the highest ratio of a round to the same round of another contender.
func spread(rounds, base []float64) (lowest, highest float64) {
	ratios := make([]float64, len(rounds))
	for i := range rounds {
		ratios[i] = rounds[i] / base[i]
	}
	return slices.Min(ratios), slices.Max(ratios)
}

// percentile returns a percentile of durations, in milliseconds.
func percentile(samples []time.Duration, of float64) float64 {
	return program.Milliseconds(program.Percentile(slices.Sorted(slices.Values(samples)), of))
}

// perSecond returns a number of things per second since a time.
func perSecond(n int, begin time.Time) float64 { return float64(n) / time.Since(begin).Seconds() }

// short formats a figure with three significant digits, and all digits before the decimal point.
func short(value float64) string {
	switch size := math.Abs(value); {
	case math.IsNaN(value):
		return "–"
	case size >= 100:
		return thousands(int64(math.Round(value)))
	case size >= 10:
		return strconv.FormatFloat(value, 'f', 1, 64)
	case size >= 1:
		return strconv.FormatFloat(value, 'f', 2, 64)
	}
	return strconv.FormatFloat(value, 'f', 3, 64)
}

// thousands formats an integer with commas.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
