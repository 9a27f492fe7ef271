package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestEveryContenderRunsInEveryPosition(t *testing.T) {
	for contenders, want := range map[int][]string{
		1: {"[0]", "[0]"},
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
	reason, wrong := errors.New("broken"), errors.New("wrong")
	contenders := make([]contender, 2)
	for i, name := range []string{"a", "b"} {
		contenders[i] = contender{name, func(_ context.Context, round int) (figures, verify, error) {
			call := fmt.Sprint(name, round)
			calls = append(calls, call)
			if call == "b3" {
				return nil, nil, reason
			}
			return figures{float64(10*i + round)}, func(context.Context) error {
				calls = append(calls, "verify "+call)
				if call == "a5" {
					return wrong
				}
				return nil
			}, nil
		}}
	}
	results, err := runRounds(t.Context(), 3, 1, contenders)
	if got := fmt.Sprint(results, err); got != "[[[0] [1] [2]] [[10] [11] [12]]] <nil>" {
		t.Errorf("got %s", got)
	}
	want := "a0, verify a0, b0, verify b0, b1, verify b1, a1, verify a1, a2, verify a2, b2, verify b2"
	if got := strings.Join(calls, ", "); got != want {
		t.Errorf("called %s", got)
	}
	if _, err := runRounds(t.Context(), 4, 1, contenders); !errors.Is(err, reason) ||
		err.Error() != "b, round 4: broken" {
		t.Errorf("got %v, want contender and round named", err)
	}
	if _, err := runRounds(t.Context(), 6, 1, contenders[:1]); !errors.Is(err, wrong) ||
		err.Error() != "a, round 6: not verified: wrong" {
		t.Errorf("got %v, want the verification's error", err)
	}
	if _, err := runRounds(t.Context(), 1, 2, contenders); err == nil ||
		err.Error() != "a, round 1: 1 figures, want 2" {
		t.Errorf("got %v, want the number of figures", err)
	}
}

func TestMedian(t *testing.T) {
	for want, values := range map[float64][]float64{7: {7}, 2: {3, 1}, 3: {9, 3, 1}, 4: {1, 100, 3, 5}} {
		before := slices.Clone(values)
		if got := median(values); got != want || !slices.Equal(values, before) {
			t.Errorf("median of %v is %v, want %v", before, got, want)
		}
	}
	if got := median([]float64{1, math.NaN(), 2}); !math.IsNaN(got) {
		t.Errorf("the median with a missing figure is %v", got)
	}
}

func TestFiguresAreShort(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0.000", 0.12345: "0.123", 1.2345: "1.23", 12.345: "12.3", 123.45: "123", 999.5: "1,000",
		1234567: "1,234,567", -1234: "-1,234", -0.5: "-0.500",
	} {
		if got := short(value); got != want {
			t.Errorf("%v is %q, want %q", value, got, want)
		}
	}
	if got := short(math.NaN()); got != "–" {
		t.Errorf("a missing figure is %q", got)
	}
}

// measured is a result whose ratio of medians is not the median of the ratios.
func measured() result {
	return result{
		scenario: "s", contenders: []string{"handwritten", "millrace"},
		benchCase: benchCase{name: "c", metrics: []metric{{"events/s", "", higher, true}, {"CPU", "%", lower, false}}},
		rounds:    [][]figures{{{100, 1}, {200, math.NaN()}, {300, 1}}, {{100, 2}, {100, 2}, {600, 2}}},
	}
}

func TestRatiosAreThoseOfTheMedians(t *testing.T) {
	var got []string
	for _, row := range measured().cells() {
		got = append(got, strings.Join(row, " | "))
	}
	want := []string{
		"c | events/s | ratio | CPU, % | ratio", "handwritten | 200 |  | – | ",
		"millrace | 100 | 0.500 (0.500–2.00) | 2.00 | ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestGoals(t *testing.T) {
	r := measured()
	for _, test := range []struct {
		goal
		text  string
		known bool
		met   bool
	}{
		{
			goal{contender: "millrace", metric: "events/s", to: "handwritten", atLeast: 0.5},
			"millrace: events/s ≥ 0.5 × handwritten", true, true,
		},
		{
			goal{contender: "millrace", metric: "events/s", to: "handwritten", atLeast: 0.51},
			"millrace: events/s ≥ 0.51 × handwritten", true, false,
		},
		{
			goal{contender: "millrace", metric: "events/s", to: "handwritten", atMost: 0.5},
			"millrace: events/s ≤ 0.5 × handwritten", true, true,
		},
		{
			goal{contender: "millrace", metric: "events/s", to: "handwritten", atMost: 0.49},
			"millrace: events/s ≤ 0.49 × handwritten", true, false,
		},
		{goal{contender: "millrace", metric: "events/s", atLeast: 100}, "millrace: events/s ≥ 100", true, true},
		{goal{contender: "millrace", metric: "CPU", atMost: 1.5}, "millrace: CPU ≤ 1.5", true, false},
		{
			goal{contender: "millrace", metric: "CPU", to: "handwritten", atMost: 1}, "millrace: CPU ≤ 1 × handwritten",
			false, false,
		},
	} {
		got, err := test.check(r)
		if err != nil || got.Goal != test.text || got.Known != test.known || got.Met != test.met {
			t.Errorf("got %+v, %v, want %q, %v, %v", got, err, test.text, test.known, test.met)
		}
	}
	for _, g := range []goal{{contender: "x", metric: "CPU", atMost: 1},
		{contender: "millrace", metric: "x", atMost: 1}, {contender: "millrace", metric: "CPU", to: "x", atMost: 1}} {
		if got, err := g.check(r); err == nil {
			t.Errorf("goal %q without such a contender and metric has the outcome %+v", g, got)
		}
	}
}

// TestGoalsNameWhatIsMeasured holds for the sizes of every run, since a goal is checked after the measurement.
func TestGoalsNameWhatIsMeasured(t *testing.T) {
	for _, sizes := range []sizeOptions{fullSizes(), quickSizes(), tinySizes()} {
		for _, s := range scenarios {
			for _, c := range s.cases(sizes) {
				for _, g := range c.goals {
					if !slices.ContainsFunc(c.metrics, func(m metric) bool { return m.name == g.metric }) {
						t.Errorf("%s, %s: goal %q: there is no such metric", s.name, c.name, g)
					}
					if (g.atLeast > 0) == (g.atMost > 0) {
						t.Errorf("%s, %s: goal %q needs one bound", s.name, c.name, g)
					}
				}
				if !slices.ContainsFunc(c.metrics, func(m metric) bool { return m.plotted }) {
					t.Errorf("%s, %s: nothing is plotted", s.name, c.name)
				}
			}
		}
	}
}

func TestJSONSaysHowItWasMeasured(t *testing.T) {
	var out strings.Builder
	p := newReporter(options{json: true, quick: true}, &out)
	r := measured()
	r.goals = []goal{{contender: "millrace", metric: "events/s", to: "handwritten", atLeast: 0.9}}
	if err := p.report(r, map[string]string{"fsync": "on"}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want one for each contender:\n%s", len(lines), out.String())
	}
	var l line
	if err := json.Unmarshal([]byte(lines[1]), &l); err != nil {
		t.Fatal(err)
	}
	if l.Scenario != "s" || l.Case != "c" || l.Contender != "millrace" || l.Rounds != 3 || !l.Quick ||
		l.Machine.Processors < 1 || l.Versions["go"] == "" || l.Settings["fsync"] != "on" {
		t.Errorf("got %s", lines[1])
	}
	if m := l.Metrics[0]; *m.Median != 100 || *m.Ratio != 0.5 || *m.RatioLow != 0.5 || *m.RatioHigh != 2 ||
		len(m.Rounds) != 3 {
		t.Errorf("got %s", lines[1])
	}
	if len(l.Goals) != 1 || l.Goals[0].Met || l.Goals[0].Value != 0.5 {
		t.Errorf("got the goals %+v", l.Goals)
	}
	if err := json.Unmarshal([]byte(lines[0]), &l); err != nil || l.Metrics[1].Median != nil ||
		l.Metrics[1].Rounds[1] != nil {
		t.Errorf("a figure that was not measured is not null: %s", lines[0])
	}
}

func TestUsageOfAProcess(t *testing.T) {
	got, err := parseStat("42 (a (strange) name) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 300 400 20 0 1 0 12345 1 1")
	if want := (procStat{own: 30, ended: 700}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"", "42", "42 (x) S 7", "42 (x) S 7 42 42 0 -1 4194560 1 2 3 4 10 x 300 400 20"} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

func TestTallyNoticesDisorderAndRepeats(t *testing.T) {
	for positions, want := range map[string]string{
		"1 2 5": "", "1 2 2": "1 events were out of order", "2 1 5": "1 events were out of order",
		"1 2": "the handler saw 2 events, want 3",
	} {
		var seen tally
		for field := range strings.FieldsSeq(positions) {
			seen.see(events(field))
		}
		got := ""
		if err := seen.inOrder(3)(t.Context()); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", positions, got, want)
		}
	}
}
