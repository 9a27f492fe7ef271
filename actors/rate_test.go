package actors

import (
	"math"
	"testing"
	"time"
)

func TestRateFollowsProgress(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var r rate
	run := func(steps int, every time.Duration, by int64) {
		for range steps {
			now = now.Add(every)
			r.moved(r.position+by, now)
		}
	}
	is := func(what string, want float64) {
		t.Helper()
		if got := r.perSecond(now); math.Abs(got-want) > want/20 {
			t.Errorf("%s: %v/s, want %v", what, got, want)
		}
	}
	is("before it begins", 0)
	r.moved(1_000_000, now)
	is("the first position is no progress", 0)
	run(10, 10*time.Millisecond, 5)
	is("it is right from the beginning", 500)
	run(1000, 100*time.Millisecond, 5)
	is("after a while", 50)
	run(1000, time.Second, 500)
	is("a faster one", 500)
	stopped := r.perSecond(now)
	now = now.Add(rateWindow)
	is("it decays at rest", stopped/math.E)
	now = now.Add(time.Hour)
	is("it ends at rest", 0)
	r.moved(5, now)
	is("a position that fell begins anew", 0)
	run(5, time.Second, 3)
	is("again", 3)
	r.moved(r.position+1, now) // at the same time
	if got := r.perSecond(now); math.IsNaN(got) || math.IsInf(got, 0) {
		t.Errorf("two moves at one time: %v", got)
	}
}

// Each change of a rate writes a node's summary, so it has three digits.
func TestRateIsRounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for moved, want := range map[int64]float64{123_456: 123_000, 1_234: 1_230, 7: 7} {
		var r rate
		r.moved(0, now)
		r.moved(moved, now.Add(time.Second))
		if got := r.perSecond(now.Add(time.Second)); got != want {
			t.Errorf("%d in a second: %v, want %v", moved, got, want)
		}
	}
}
