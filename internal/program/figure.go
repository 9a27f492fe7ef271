package program

import (
	"math"
	"time"
)

// Percentile returns the nearest-rank percentile of sorted samples; 0 without samples. share is between 0 and 1.
func Percentile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(share * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Milliseconds returns a duration in milliseconds, with three decimals.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond).Microseconds()) / 1000
}
