package ownership

import (
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// now is the time at which searches begin in these tests.
var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// idle returns a search that has found nothing in the first search of a node, and a table with a lease that runs.
func idle() (*Search, *Table) {
	s, t := new(Search), NewTable()
	s.Begin(now)
	s.Decide(t, Free{Unowned: true})
	t.Read(nil, false)
	s.Ended(Result{})
	t.Claimed([]engine.Lease{{Row: 1, Epoch: 1}})
	return s, t
}

func TestReadOfTheOwnedLeasesIsPutOffByClaims(t *testing.T) {
	s, table := new(Search), NewTable()
	s.Begin(now)
	if !s.Decide(table, Free{}).ReadOwned { // a node that starts
		t.Error("the first search does not read the owned leases")
	}
	if s.resync != resyncEvery {
		t.Errorf("the leases are read after %d searches, want %d", s.resync, resyncEvery)
	}
	s.Claimed(100 * resyncLeases)
	if want := resyncEvery + 100; s.resync != want {
		t.Errorf("after a claim, the leases are read after %d searches, want %d", s.resync, want)
	}
	// A claim in each search, as while tenants are created, does not put the read off for ever.
	left := s.resync
	for i := range left {
		s.Begin(now)
		if s.Decide(table, Free{}).ReadOwned {
			t.Fatalf("the leases are read in search %d of %d", i, left)
		}
		s.Claimed(100*resyncLeases + i)
	}
	if !s.Resyncs() {
		t.Errorf("the read is %d searches away after %d", s.resync, left)
	}
	s.Claimed(200 * resyncLeases)
	if !s.Resyncs() {
		t.Errorf("a claim has put off the read that is due to %d", s.resync)
	}
}

func TestReadsOfTheOwnedLeasesAreRareForManyLeases(t *testing.T) {
	for leases, want := range map[int]int{0: resyncEvery, resyncEvery * resyncLeases: resyncEvery,
		100 * resyncLeases: 100} {
		var s Search
		s.plan(leases)
		if s.resync != want {
			t.Errorf("the %d leases are read after %d searches, want %d", leases, s.resync, want)
		}
		s.Claimed(leases + resyncLeases - 1)
		if s.resync != want {
			t.Errorf("few claims put off the read of %d leases to %d", leases, s.resync)
		}
		s.Claimed(leases + resyncLeases)
		if s.resync != want+1 {
			t.Errorf("claims put off the read of %d leases to %d", leases, s.resync)
		}
	}
}

func TestSecondStepOfASearch(t *testing.T) {
	free := func(row int32) []engine.LeaseRef { return []engine.LeaseRef{{Row: row}} }
	for name, test := range map[string]struct {
		before func(s *Search, t *Table)
		found  Free
		want   Step
	}{
		"nothing":          {found: Free{Unowned: true}},
		"no notifications": {found: Free{Pooled: true}, want: Step{ReadOrders: true}},
		"a free lease":     {found: Free{Leases: free(2)}, want: Step{Balance: true}},
		"its own lease":    {found: Free{Leases: free(1)}, want: Step{Balance: true, ReadOwned: true}},
		"its draining lease": {
			before: func(_ *Search, t *Table) { t.Drain(1) },
			found:  Free{Leases: free(1)}, want: Step{Balance: true, ReadOwned: true},
		},
		"a lease that it releases": {
			before: func(_ *Search, t *Table) { t.Drained(engine.Advance{Lease: engine.Lease{Row: 1, Epoch: 1}}) },
			found:  Free{Leases: free(1)}, want: Step{Balance: true},
		},
		"nodes came": {
			before: func(s *Search, _ *Table) { s.Rebalance() }, want: Step{Balance: true},
		},
		"leases may be lost": {
			before: func(s *Search, _ *Table) { s.Resync() }, want: Step{Balance: true, ReadOwned: true},
		},
		"the node was cut off": {
			before: func(s *Search, _ *Table) { s.Revalidate() },
			want:   Step{Balance: true, ReadOwned: true, Revalidate: true},
		},
		"the node closes": {
			before: func(s *Search, t *Table) { s.Revalidate(); t.Close() }, found: Free{Leases: free(2), Pooled: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, table := idle()
			if test.before != nil {
				test.before(s, table)
			}
			s.Begin(now)
			if got := s.Decide(table, test.found); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if table.ended != nil != test.want.ReadOwned {
				t.Errorf("the read of the table has begun: %v", table.ended != nil)
			}
			s.Ended(Result{})
			s.Begin(now)
			if got := s.Decide(table, Free{}); got != (Step{}) {
				t.Errorf("the next search: %+v", got)
			}
		})
	}
}

// What a failed search should have done is done by the next one.
func TestSearchThatFailsIsMadeUpFor(t *testing.T) {
	for _, revalidate := range []bool{false, true} {
		s, table := idle()
		if revalidate {
			s.Revalidate()
		}
		s.Begin(now)
		step := s.Decide(table, Free{})
		if _, follows := s.Ended(Result{Step: step, Failed: true, More: true, Short: true}); follows {
			t.Error("a search follows a failed one at once")
		}
		s.Begin(now)
		want := Step{Balance: true, ReadOwned: true, Revalidate: revalidate}
		if got := s.Decide(table, Free{}); got != want {
			t.Errorf("after a failure, the next search does %+v, want %+v", got, want)
		}
	}
}

func TestSearchThatFollows(t *testing.T) {
	for name, test := range map[string]struct {
		request bool
		result  Result
		after   time.Duration
		follows bool
	}{
		"none":                      {after: searchAgain},
		"requested meanwhile":       {request: true, follows: true},
		"tenants are left":          {result: Result{More: true}, follows: true},
		"other nodes were quicker":  {result: Result{Short: true}, after: searchAgain, follows: true},
		"both":                      {result: Result{More: true, Short: true}, follows: true},
		"requested, and it failed":  {request: true, result: Result{Failed: true}},
		"quicker nodes, and failed": {result: Result{Short: true, Failed: true}},
	} {
		s, _ := idle()
		s.Request()
		s.Begin(now)
		if !s.Busy() {
			t.Errorf("%s: no search is in progress", name)
		}
		if test.request {
			s.Request()
		}
		after, follows := s.Ended(test.result)
		if follows != test.follows || after != test.after || s.Busy() {
			t.Errorf("%s: a search follows %v after %v, busy %v", name, follows, after, s.Busy())
		}
	}
}

func TestNotificationsCauseFewSearches(t *testing.T) {
	var s Search
	if wait := s.Soon(now); wait != 0 {
		t.Errorf("the first search waits for %v", wait)
	}
	s.Begin(now)
	for since, want := range map[time.Duration]time.Duration{
		0: searchSoon, searchSoon - 1: 1, searchSoon: 0, time.Hour: 0,
	} {
		if wait := s.Soon(now.Add(since)); wait != want {
			t.Errorf("%v after a search, the next one waits for %v, want %v", since, wait, want)
		}
	}
}

func TestLeasesWithoutAnOwnerAreRarelySearchedFor(t *testing.T) {
	for name, test := range map[string]struct {
		found Free
		rest  time.Duration // until they are searched for again
	}{
		"a quick search":            {Free{Unowned: true, Took: time.Millisecond}, unownedShare * time.Millisecond},
		"a slow search":             {Free{Unowned: true, Took: time.Minute}, unownedMost},
		"one that found some":       {Free{Unowned: true, Took: time.Minute, Leases: []engine.LeaseRef{{Row: 2}}}, 0},
		"one that left them out":    {Free{Took: time.Minute}, 0},
		"one without notifications": {Free{Unowned: true, Took: time.Minute, Pooled: true}, 0},
	} {
		s, table := idle()
		if !s.Begin(now) {
			t.Errorf("%s: leases without an owner are left out before", name)
		}
		s.Decide(table, test.found)
		s.Ended(Result{})
		if test.rest > 0 && s.Begin(now.Add(test.rest-1)) {
			t.Errorf("%s: leases without an owner are searched for too early", name)
		}
		if !s.Begin(now.Add(test.rest)) {
			t.Errorf("%s: leases without an owner are left out", name)
		}
		s.Request()
		if !s.Begin(now) {
			t.Errorf("%s: leases without an owner are left out after a request", name)
		}
	}
}
