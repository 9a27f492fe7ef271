package machine

import (
	"testing"
	"time"
)

func TestProbesOfOpenBreakersAreSpread(t *testing.T) {
	const wait = time.Minute
	seen := make(map[time.Duration]bool)
	for i := range 100 {
		delay := ProbeDelay(wait, float64(i)/100)
		if delay < wait || delay > wait+wait/5 {
			t.Errorf("a probe after %v", delay)
		}
		seen[delay] = true
	}
	if len(seen) < 50 {
		t.Errorf("100 probes at %d instants", len(seen))
	}
}
