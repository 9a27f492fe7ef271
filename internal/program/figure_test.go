package program

import (
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, test := range []struct {
		n     int
		share float64
		want  time.Duration
	}{
		{0, 0.5, 0}, {1, 0.5, 1}, {1, 0.99, 1}, {2, 0.5, 1}, {2, 0.99, 2}, {3, 0.5, 2},
		{100, 0.5, 50}, {100, 0.99, 99}, {100, 1, 100}, {100, 0, 1},
	} {
		if got := Percentile(hundred[:test.n], test.share); got != test.want {
			t.Errorf("Percentile(%d samples, %v) is %d, want %d", test.n, test.share, got, test.want)
		}
	}
}

func TestMillisecondsHaveThreeDecimals(t *testing.T) {
	for d, want := range map[time.Duration]float64{0: 0, 1500 * time.Microsecond: 1.5, 1234567: 1.235,
		time.Second: 1000} {
		if got := Milliseconds(d); got != want {
			t.Errorf("%v is %v ms, want %v", d, got, want)
		}
	}
}
