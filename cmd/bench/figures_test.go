package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEveryContenderRunsInEveryPosition(t *testing.T) {
	for contenders, want := range map[int][]string{
		2: {"[0 1]", "[1 0]", "[0 1]"},
		3: {"[0 1 2]", "[1 0 2]", "[2 0 1]", "[0 2 1]", "[1 2 0]", "[2 1 0]", "[0 1 2]"},
	} {
		for round := range want {
			if got := fmt.Sprint(order(contenders, round)); got != want[round] {
				t.Errorf("round %d of %d contenders: %s, want %s", round, contenders, got, want[round])
			}
		}
	}
}

func TestContendersAlternateAndFailByName(t *testing.T) {
	var calls []string
	reason := errors.New("broken")
	contenders := make([]contender[string], 2)
	for i, name := range []string{"a", "b"} {
		contenders[i] = contender[string]{name, func(_ context.Context, round int) (string, error) {
			call := fmt.Sprint(name, round)
			calls = append(calls, call)
			if call == "b3" {
				return "", reason
			}
			return call, nil
		}}
	}
	results, err := runRounds(t.Context(), 3, contenders)
	if got := fmt.Sprint(results, err); got != "[[a0 a1 a2] [b0 b1 b2]] <nil>" {
		t.Errorf("got %s", got)
	}
	if got := strings.Join(calls, " "); got != "a0 b0 b1 a1 a2 b2" {
		t.Errorf("called %s", got)
	}
	if _, err := runRounds(t.Context(), 4, contenders); !errors.Is(err, reason) || err.Error() != "b, round 4: broken" {
		t.Errorf("got %v, want contender and round named", err)
	}
}

func TestMedian(t *testing.T) {
	for want, values := range map[float64][]float64{7: {7}, 2: {3, 1}, 3: {9, 3, 1}, 4: {1, 100, 3, 5}} {
		before := slices.Clone(values)
		if got := median(values); got != want || !slices.Equal(values, before) {
			t.Errorf("median of %v is %v, want %v", before, got, want)
		}
	}
}

// TestRatiosAgreeWithWhatIsPrinted has rounds in which the median of the ratios is not the ratio of the medians.
func TestRatiosAgreeWithWhatIsPrinted(t *testing.T) {
	var out bytes.Buffer
	contenders := []contender[float64]{{name: "handwritten"}, {name: "millrace"}}
	if err := showSpeeds(&out, "events/s", contenders, [][]float64{{100, 200.4, 300}, {100, 100, 600}}); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(strings.Fields(out.String()), " "), "handwritten 200 events/s millrace 100 events/s ratio 0.50 (rounds 0.50 to 2.00)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	out.Reset()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	latencies := []contender[[]time.Duration]{{name: "handwritten"}, {name: "millrace"}}
	err := showLatencies(&out, 0.5, latencies, [][][]time.Duration{{{ms(3), ms(1), ms(2)}, {ms(2), ms(2), ms(9)}}, {{ms(5), ms(4), ms(6)}, {ms(8), ms(7), ms(9)}}})
	if err != nil {
		t.Fatal(err)
	}
	want := "handwritten p50 2.000 ms p99 9.000 ms 6 probes millrace p50 6.000 ms p99 9.000 ms p50 ratio 3.00 (rounds 2.50 to 4.00)"
	if got := strings.Join(strings.Fields(out.String()), " "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
