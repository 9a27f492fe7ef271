package main

import (
	"fmt"
	"time"
)

// sizeOptions are the sizes of all scenarios.
type sizeOptions struct {
	rounds int

	appendTime time.Duration
	writers    []int

	// aggregateEvents are the lengths of the streams that are loaded.
	aggregateEvents []int
	aggregateTime   time.Duration

	catchUpEvents int
	// slowShare is the part of the events that slow contenders apply: 1 of this number.
	slowShare int

	liveRate int
	liveTime time.Duration

	wideTenants, wideProjections, wideEvents, wideProbes int

	idleProjections  []int
	startProjections []int
	// perTenant is the number of projections of each tenant in idle and start.
	perTenant int
	// idleTime is measured after idleSettle, in which the start ends what it left to do, such as checkpoints that are
	// written with a delay.
	idleTime, idleSettle time.Duration

	// pageRows is the number of projections on a page.
	pageProjections, pageRows int

	floodTenants, floodProjections, floodProbes int

	fanoutProjections, fanoutEvents int
	partitionEvents                 int
	takeoverLeases                  []int

	peerEvents, peerRate int
	peerTime             time.Duration

	fileWriters []int
	fileEvents  int
	probes      int
}

// fullSizes are those of the issue of record: the figures in docs/performance.md.
func fullSizes() sizeOptions {
	return sizeOptions{
		rounds:     5,
		appendTime: 3 * time.Second, writers: []int{1, 8, 32},
		aggregateEvents: []int{10, 1000, 100_000}, aggregateTime: 3 * time.Second,
		catchUpEvents: 500_000, slowShare: 10,
		liveRate: 500, liveTime: 10 * time.Second,
		wideTenants: 2000, wideProjections: 10, wideEvents: 2000, wideProbes: 300,
		idleProjections: []int{20_000, 100_000}, startProjections: []int{20_000, 100_000}, perTenant: 10,
		idleTime: 30 * time.Second, idleSettle: 10 * time.Second,
		pageProjections: 20_000, pageRows: 100,
		floodTenants: 99, floodProjections: 32, floodProbes: 1000,
		fanoutProjections: 200, fanoutEvents: 500, partitionEvents: 5000, takeoverLeases: []int{12, 1000, 50_000},
		peerEvents: 30_000, peerRate: 100, peerTime: 4 * time.Second,
		fileWriters: []int{1, 32}, fileEvents: 200_000, probes: 500,
	}
}

// quickSizes let all scenarios end within three minutes on two processors.
func quickSizes() sizeOptions {
	return sizeOptions{
		rounds:     2,
		appendTime: 300 * time.Millisecond, writers: []int{1, 8, 32},
		aggregateEvents: []int{10, 1000, 20_000}, aggregateTime: 300 * time.Millisecond,
		catchUpEvents: 200_000, slowShare: 10,
		liveRate: 500, liveTime: time.Second,
		wideTenants: 200, wideProjections: 10, wideEvents: 400, wideProbes: 50,
		idleProjections: []int{2000}, startProjections: []int{5000}, perTenant: 10, idleTime: 3 * time.Second,
		idleSettle:      6 * time.Second,
		pageProjections: 2000, pageRows: 100,
		floodTenants: 99, floodProjections: 32, floodProbes: 100,
		fanoutProjections: 200, fanoutEvents: 50, partitionEvents: 1200, takeoverLeases: []int{12, 1000},
		peerEvents: 5000, peerRate: 100, peerTime: time.Second,
		fileWriters: []int{1, 32}, fileEvents: 50_000, probes: 100,
	}
}

// tinySizes are for tests.
func tinySizes() sizeOptions {
	return sizeOptions{
		rounds:     1,
		appendTime: 20 * time.Millisecond, writers: []int{2},
		aggregateEvents: []int{10, 1000}, aggregateTime: 10 * time.Millisecond,
		catchUpEvents: 3000, slowShare: 30,
		liveRate: 200, liveTime: 100 * time.Millisecond,
		wideTenants: 3, wideProjections: 2, wideEvents: 6, wideProbes: 2,
		idleProjections: []int{20}, startProjections: []int{20}, perTenant: 5, idleTime: 200 * time.Millisecond,
		idleSettle:      100 * time.Millisecond,
		pageProjections: 20, pageRows: 5,
		floodTenants: 3, floodProjections: 2, floodProbes: 3,
		fanoutProjections: 5, fanoutEvents: 5, partitionEvents: 40, takeoverLeases: []int{12},
		peerEvents: 50, peerRate: 100, peerTime: 100 * time.Millisecond,
		fileWriters: []int{2}, fileEvents: 2000, probes: 3,
	}
}

// most returns the highest number of writers.
func (o sizeOptions) most() int {
	n := 0
	for _, w := range o.writers {
		n = max(n, w)
	}
	return n
}

func (o sizeOptions) validate() error {
	switch {
	case o.rounds < 1:
		return fmt.Errorf("-rounds must be at least 1: %d", o.rounds)
	case o.catchUpEvents < 1:
		return fmt.Errorf("-events must be at least 1: %d", o.catchUpEvents)
	}
	if n := o.idleProjections[0]; n < o.perTenant || n%o.perTenant != 0 {
		return fmt.Errorf("-projections must be a multiple of %d and at least %d: %d", o.perTenant, o.perTenant, n)
	}
	return nil
}
