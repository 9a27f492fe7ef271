package program

import (
	"math"
	"time"
)

// Percentile is the smallest of the sorted samples that at least that share of them does not exceed (nearest rank). Without
// samples it is 0.
func Percentile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(share * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Milliseconds is a duration in milliseconds, with three decimals.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond).Microseconds()) / 1000
}
