package ownership

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

func names(tenants map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(tenants)), " ")
}

func TestManyNotificationsOfTenantsAreFewRounds(t *testing.T) {
	c, s := new(Changes), new(Search)
	if after, first := c.Add("a", now); after != 0 || !first {
		t.Errorf("the first round begins %v after %v", first, after)
	}
	if _, first := c.Add("b", now); first {
		t.Error("two rounds are due")
	}
	if named := names(c.Begin(now, s)); named != "a b" {
		t.Errorf("the round has %q", named)
	}
	for since, want := range map[time.Duration]time.Duration{0: changesGap, 1: changesGap - 1, changesGap: 0,
		time.Hour: 0} {
		at := now.Add(since)
		c.due = false
		if after, first := c.Add("c", at); after != want || !first {
			t.Errorf("%v after a round, the next one begins %v after %v", since, first, after)
		}
	}
	if named := names(c.Begin(now, s)); named != "c" {
		t.Errorf("the second round has %q", named)
	}
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: changesGap,
		20 * time.Millisecond: 20 * time.Millisecond, time.Hour: searchSoon} {
		c.Searched(took)
		c.due = false
		if after, _ := c.Add("d", now); after != want {
			t.Errorf("after a search of %v, the next round begins after %v", took, after)
		}
	}
}

// A search in progress may claim leases that should not run.
func TestTenantsNamedDuringASearchAreCheckedAfterIt(t *testing.T) {
	c, s := new(Changes), new(Search)
	c.Add("before", now)
	c.Begin(now, s)
	s.Begin(now)
	c.Add("during", now)
	c.Begin(now, s)
	c.Add("too", now)
	c.Begin(now, s)
	s.Ended(Result{})
	c.Add("after", now)
	if claiming := names(c.Searched(0)); claiming != "during too" {
		t.Errorf("checked once more: %q", claiming)
	}
	if claiming := names(c.Searched(0)); claiming != "" {
		t.Errorf("checked three times: %q", claiming)
	}
	if named := names(c.Begin(now, s)); named != "after" {
		t.Errorf("the next round has %q", named)
	}
}
