package main

import (
	"context"
	"slices"
)

// scenario is a subject of measurement. Its cases differ in size.
type scenario struct {
	name string
	// about describes what the scenario measures, as a paragraph.
	about string
	// embedded scenarios use files, and no server.
	embedded bool
	cases    func(o sizeOptions) []benchCase
}

// scenarios are all scenarios, in the order in which they run.
var scenarios = []scenario{
	appendScenario, aggregateScenario, catchUpScenario, liveScenario, wideScenario, fanoutScenario, partitionsScenario,
	idleScenario, startScenario,
	pagesScenario, floodScenario, takeoverScenario, embeddedScenario, peersScenario,
}

// scenarioNames returns the names of all scenarios.
func scenarioNames() []string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// benchCase compares contenders in an env of its own.
type benchCase struct {
	name    string
	metrics []metric
	goals   []goal
	// rounds is the number of rounds. 0 means the value of -rounds.
	rounds int
	// prepare creates the data of the case and returns the contenders. All others are compared with the first.
	prepare func(ctx context.Context, e *env) ([]contender, error)
}

// metric is a figure that each contender is measured by.
type metric struct {
	name, unit string
	better     direction
	// plotted metrics are in the plot of the scenario.
	plotted bool
}

// direction is which of two figures is better.
type direction string

const (
	higher direction = "higher"
	lower  direction = "lower"
)

// contender is an implementation that is measured.
type contender struct {
	name string
	// round measures once. The frame calls the returned function, which verifies the result, before it takes the
	// figures.
	round func(ctx context.Context, round int) (figures, verify, error)
}

// figures are the results of a round, in the order of the metrics of the case. A figure that cannot be measured here is
// NaN.
type figures []float64

// verify returns an error unless the contender did what it should.
type verify func(ctx context.Context) error

// goal is a bound for a contender's metric, or for its ratio to that of another contender.
type goal struct {
	contender, metric string
	// to is the contender that the metric is divided by, empty for the metric itself.
	to string
	// The bound is one of these.
	atLeast, atMost float64
}

// result has the measured rounds of a case.
type result struct {
	scenario string
	benchCase
	// contenders are the names, and rounds the figures of each round, by contender.
	contenders []string
	rounds     [][]figures
}

// of returns the figures of a metric in all rounds of a contender.
func (r result) of(contender, metric int) []float64 {
	values := make([]float64, len(r.rounds[contender]))
	for i, round := range r.rounds[contender] {
		values[i] = round[metric]
	}
	return values
}

// median returns the median of a metric, by names. It returns false if there is no such contender or metric.
func (r result) median(contender, name string) (float64, bool) {
	c := slices.Index(r.contenders, contender)
	m := slices.IndexFunc(r.metrics, func(m metric) bool { return m.name == name })
	if c < 0 || m < 0 {
		return 0, false
	}
	return median(r.of(c, m)), true
}
