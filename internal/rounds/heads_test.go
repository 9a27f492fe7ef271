package rounds

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// feeds has when the last notification of each tenant with a feed arrived.
type feeds map[string]time.Time

func (f feeds) Tenants() []string { return slices.Sorted(maps.Keys(f)) }

func (f feeds) Noticed(tenant string) (at time.Time, exists bool) {
	at, exists = f[tenant]
	return at, exists
}

func feedsOf(n int) feeds {
	f := make(feeds)
	for i := range n {
		f[fmt.Sprint("t", i)] = time.Time{}
	}
	return f
}

// read reads the heads of a round and returns the tenants of each statement.
func read(h *Heads, f Feeds, scope Scope) (statements [][]string) {
	h.Begin(f, scope, time.Now())
	for {
		tenants, _ := h.Next()
		if len(tenants) == 0 {
			return statements
		}
		statements = append(statements, tenants)
		h.Read(f, time.Now(), nil)
	}
}

func TestHeadsOfManyTenantsAreReadOnceInTwelveRounds(t *testing.T) {
	t.Parallel()
	for tenants, want := range map[int]struct{ rounds, most int }{0: {1, 0}, 1: {1, 1}, headsAtOnce: {1, headsAtOnce},
		600: {3, headsAtOnce}, 10_000: {cycleMost, 834},
		12 * 834: {cycleMost, 834}} {
		f, h := feedsOf(tenants), NewHeads(time.Second)
		for cycle := range 2 {
			seen := make(map[string]int)
			for range want.rounds {
				round := slices.Concat(read(h, f, Due)...)
				if len(round) > want.most {
					t.Errorf("a round of %d tenants reads %d, want at most %d", tenants, len(round), want.most)
				}
				for _, tenant := range round {
					seen[tenant]++
				}
			}
			if len(seen) != tenants {
				t.Errorf("cycle %d of %d tenants reads %d in %d rounds", cycle, tenants, len(seen), want.rounds)
			}
		}
		if round := slices.Concat(read(h, f, All)...); len(round) != tenants {
			t.Errorf("%d of %d tenants are read where no notifications arrive", len(round), tenants)
		}
	}
}

func TestTenantsWhoseWritersDoNotNotifyAreReadInEachRound(t *testing.T) {
	t.Parallel()
	f, h, now := feedsOf(3000), NewHeads(time.Second), time.Now()
	read(h, f, Due)
	h.Read(f, now, []string{"t5", "t6", "gone"})
	f["t6"] = now // its notification was late
	for range 2 * cycleMost {
		round := slices.Concat(read(h, f, Due)...)
		if n := len(slices.DeleteFunc(slices.Clone(round),
			func(tenant string) bool { return tenant != "t5" })); n != 1 || slices.Contains(round, "gone") {
			t.Fatalf("t5 is %d times in a round of %d tenants", n, len(round))
		}
	}
	f["t5"] = now // another writer of the tenant notifies
	h.Begin(f, Due, now.Add(missedFor))
	if len(h.missed) != 1 {
		t.Errorf("a notification of one writer counts for all: %v", h.missed)
	}
	h.Begin(f, Due, now.Add(missedFor+time.Second))
	if len(h.missed) != 0 {
		t.Errorf("after a day without such events: %v", h.missed)
	}
}

func TestEventsWithARecentNotificationAreNotMissed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for notice, want := range map[time.Duration]bool{noticeGrace + 1: true, noticeGrace: false, 0: false} {
		f, h := feeds{"a": now.Add(-notice)}, NewHeads(time.Second)
		h.Read(f, now, []string{"a"})
		if _, missed := h.missed["a"]; missed != want {
			t.Errorf("a notification %v before the poll: missed %v, want %v", notice, missed, want)
		}
	}
	f, h := feeds{"a": {}}, NewHeads(time.Second)
	h.Read(f, now, []string{"a"})
	f["a"] = now.Add(-noticeGrace) // it was in time
	h.Begin(f, Due, now)
	if len(h.missed) != 0 {
		t.Errorf("missed, though notified: %v", h.missed)
	}
	h.Read(f, now, []string{"a"})
	delete(f, "a")
	h.Begin(f, Due, now)
	if len(h.missed) != 0 || !h.Over() {
		t.Errorf("a tenant without a feed: missed %v, over %v", h.missed, h.Over())
	}
}

func TestStatementsOfARoundAreSpreadOverTheInterval(t *testing.T) {
	t.Parallel()
	const interval = time.Minute
	for tenants, want := range map[int]int{0: 1, 1: 1, headsAtOnce: 1, headsAtOnce + 1: 2, 3 * headsAtOnce: 3} {
		f, h := feedsOf(tenants), NewHeads(interval)
		statements := read(h, f, All)
		_, after := h.Next()
		if n := max(1, len(statements)); n != want || after != interval/time.Duration(want) {
			t.Errorf("%d tenants: %d statements, one every %v, want %d", tenants, n, after, want)
		}
		if len(statements) > 0 && len(statements[0]) != min(tenants, headsAtOnce) {
			t.Errorf("the first statement of %d tenants reads %d", tenants, len(statements[0]))
		}
	}
}

func TestStatementsFollowAtOnceIfNotificationsWereLost(t *testing.T) {
	t.Parallel()
	for scope, want := range map[Scope]bool{All: false, AllNow: true} {
		f, h := feedsOf(headsAtOnce+1), NewHeads(time.Second)
		h.Begin(f, scope, time.Now())
		if tenants, _ := h.Next(); len(tenants) != headsAtOnce {
			t.Fatalf("the first statement reads %d tenants", len(tenants))
		}
		if tenants, _ := h.Next(); len(tenants) != 0 {
			t.Errorf("%d tenants are read while a statement is in progress", len(tenants))
		}
		if atOnce := h.Read(f, time.Now(), nil); atOnce != want {
			t.Errorf("scope %d: the second statement follows at once %v, want %v", scope, atOnce, want)
		}
		if tenants, _ := h.Next(); len(tenants) != 1 {
			t.Errorf("the last statement reads %d tenants", len(tenants))
		}
		if h.Read(f, time.Now(), nil) {
			t.Error("a statement follows the last one at once")
		}
	}
}

func TestTenantsWhoseFeedHasStoppedAreNotRead(t *testing.T) {
	t.Parallel()
	f, h := feedsOf(2*headsAtOnce), NewHeads(time.Second)
	first := slices.Concat(read(h, f, Due)...)
	f = make(feeds)
	if round := slices.Concat(read(h, f, Due)...); len(first) != headsAtOnce || len(round) != 0 {
		t.Errorf("%d tenants, and %d without a feed, are read", len(first), len(round))
	}
}
