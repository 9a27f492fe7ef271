package actors

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
)

// feedsOf is a Router with the feeds of n tenants, which have settled up to 1.
func feedsOf(n int) *Router {
	r := newRouter(NewSystem(zap.NewNop()).Root)
	for i := range n {
		ref := r.add(fmt.Sprint("t", i), &actor.PID{})
		ref.mark.Store(1)
		ref.incarnation.Store(7)
	}
	return r
}

func TestHeadsOfManyTenantsAreReadOnceInTwelveRounds(t *testing.T) {
	t.Parallel()
	for tenants, want := range map[int]struct{ rounds, most int }{0: {1, 0}, 1: {1, 1}, headsAtOnce: {1, headsAtOnce},
		600: {3, headsAtOnce}, 10_000: {cycleMost, 834}} {
		feeds, h := feedsOf(tenants), heads{missed: make(map[string]missed)}
		for cycle := range 2 {
			read := make(map[string]int)
			for range want.rounds {
				round := h.nextRound(feeds, false)
				if len(round) > want.most {
					t.Errorf("a round of %d tenants reads %d, want at most %d", tenants, len(round), want.most)
				}
				for _, tenant := range round {
					read[tenant]++
				}
			}
			if len(read) != tenants {
				t.Errorf("cycle %d of %d tenants reads %d in %d rounds", cycle, tenants, len(read), want.rounds)
			}
		}
		if round := h.nextRound(feeds, true); len(round) != tenants {
			t.Errorf("%d of %d tenants are read where no notifications arrive", len(round), tenants)
		}
	}
}

func TestTenantsWhoseWritersDoNotNotifyAreReadInEachRound(t *testing.T) {
	t.Parallel()
	feeds, h := feedsOf(3000), heads{missed: make(map[string]missed)}
	now := time.Now()
	h.missed["t5"] = missed{at: now}
	h.missed["t6"] = missed{at: now}
	h.missed["gone"] = missed{at: now}
	feeds.Wake("t6", engine.UnknownPosition) // its notification was late
	for range 2 * cycleMost {
		h.reviewMissed(feeds, now)
		round := h.nextRound(feeds, false)
		if n := len(slices.DeleteFunc(slices.Clone(round),
			func(tenant string) bool { return tenant != "t5" })); n != 1 || slices.Contains(round, "gone") {
			t.Fatalf("t5 is %d times in a round of %d tenants", n, len(round))
		}
	}
	feeds.Wake("t5", engine.UnknownPosition) // another writer of the tenant notifies
	h.reviewMissed(feeds, now)
	if len(h.missed) != 1 {
		t.Errorf("a notification of one writer counts for all: %v", h.missed)
	}
	h.reviewMissed(feeds, now.Add(missedFor+time.Second))
	if len(h.missed) != 0 {
		t.Errorf("after a day without such events: %v", h.missed)
	}
}

func TestEventsThatTheirFeedKnowsAreNoNews(t *testing.T) {
	t.Parallel()
	feeds := feedsOf(5)
	tenants := []string{"t0", "t1", "t2", "t3", "t4"}
	feeds.find("t1").polls.Store(true)    // it waits for an open transaction
	feeds.find("t2").incarnation.Store(0) // it could not read
	heads := engine.Heads{Positions: map[string]int64{"t0": 2, "t1": 2, "t2": 2, "t3": 1, "t4": 0}, Incarnation: 7}
	if news := feeds.compare(tenants, feeds.marks(tenants), heads); !slices.Equal(news, []string{"t0"}) {
		t.Errorf("news of %v, want t0", news)
	}
}
