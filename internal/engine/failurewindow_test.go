package engine

import (
	"testing"

	"pgregory.net/rapid"
)

func TestTooManyRecentFailures(t *testing.T) {
	for name, test := range map[string]struct {
		handled, failed, handledAfter int
		most                          float64
		want                          bool
	}{
		"the first":                        {0, 0, 0, 0.5, false},
		"nothing but failures, not yet":    {0, 18, 0, 0.5, false},
		"nothing but failures":             {0, 19, 0, 0.5, true},
		"few suffice at a low share":       {80, 19, 0, 0.1, true},
		"not below 20, at a lower share":   {80, 18, 0, 0.1, false},
		"half, after much success":         {1000, 49, 0, 0.5, false},
		"more than half":                   {1000, 50, 0, 0.5, true},
		"long ago":                         {0, 50, 90, 0.5, false},
		"out of sight":                     {0, 100, 100, 0, false},
		"all are allowed":                  {0, 5000, 0, -1, false},
		"none is allowed":                  {0, 19, 0, 0, true},
		"more than all cannot fail":        {0, 5000, 0, 1, false},
		"a share of nothing is too much":   {1000, 19, 0, 0.0001, true},
		"success between does not hide it": {10, 60, 30, 0.5, true},
	} {
		var r FailureWindow
		r.Handled(test.handled)
		for range test.failed {
			r.Failed()
		}
		r.Handled(test.handledAfter)
		if failed, of, got := r.TooMany(test.most); got != test.want {
			t.Errorf("%s: too many is %v, with %d of %d", name, got, failed, of)
		}
	}
}

func TestRecentEventsAreTheLastHundred(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r FailureWindow
		var naive []bool
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "fails") {
				for range rapid.IntRange(1, 12).Draw(t, "in a row") {
					r.Failed()
					naive = append(naive, true)
				}
				continue
			}
			n := rapid.IntRange(0, 250).Draw(t, "handled")
			r.Handled(n)
			naive = append(naive, make([]bool, n)...)
		}
		most := rapid.Float64Range(-0.2, 1).Draw(t, "most")
		count := func(events []bool) (failed, of int) {
			events = events[max(0, len(events)-100):]
			for _, f := range events {
				if f {
					failed++
				}
			}
			return failed, len(events)
		}
		failed, of := count(naive)
		if f, n := r.Share(); f != failed || n != of {
			t.Fatalf("%d of %d failed, want %d of %d", f, n, failed, of)
		}
		failed, of = count(append(naive, true))
		want := most >= 0 && failed >= 20 && float64(failed) > most*float64(of)
		if f, n, got := r.TooMany(most); f != failed || n != of || got != want {
			t.Fatalf("%d of %d failed, too many: %v; want %d of %d, %v", f, n, got, failed, of, want)
		}
	})
}
