package ownership

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// observation has peers as "a+ b-2", where + is a lock that is held and a number the last heartbeat, and the expected
// result.
type observation struct {
	at    int // in ms
	peers string
	dead  string
	again int // in ms
}

func peers(text string) (all []engine.Peer) {
	for _, p := range strings.Fields(text) {
		at := strings.IndexAny(p, "+-")
		beat, _ := strconv.ParseInt(p[at+1:], 10, 64)
		all = append(all, engine.Peer{ID: p[:at], Locked: p[at] == '+', Beat: time.Unix(beat, 0)})
	}
	return all
}

func TestDeathWatch(t *testing.T) {
	for name, observations := range map[string][]observation{
		"no peers":               {{0, "", "", 0}, {1000, "", "", 0}},
		"all alive":              {{0, "a+ b+", "", 0}, {1000, "a+ b+", "", 0}},
		"dead at the second one": {{0, "a+ b+", "", 0}, {1000, "a- b+", "", 300}, {1300, "a- b+", "a", 0}},
		"never seen":             {{0, "a-", "", 0}, {1000, "a-", "", 0}, {9000, "a-", "", 0}},
		"first seen late": {
			{0, "a-", "", 0}, {1000, "a+", "", 0}, {2000, "a-", "", 300}, {2400, "a-", "a", 0},
		},
		"one is not enough": {{0, "a+", "", 0}, {9000, "a-", "", 300}},
		"too near": {
			{0, "a+", "", 0}, {1000, "a-", "", 300}, {1100, "a-", "", 200}, {1299, "a-", "", 1}, {1300, "a-", "a", 0},
		},
		"seen in between": {
			{0, "a+", "", 0}, {1000, "a-", "", 300}, {1100, "a+", "", 0}, {1400, "a-", "", 300}, {1700, "a-", "a", 0},
		},
		"again while it is missing": {
			{0, "a+", "", 0}, {1000, "a-", "", 300}, {1300, "a-", "a", 0}, {1310, "a-", "a", 0},
		},
		"alive after all": {
			{0, "a+", "", 0}, {1000, "a-", "", 300}, {1300, "a-", "a", 0}, {1400, "a+", "", 0}, {1500, "a-", "", 300},
		},
		"marked dead": {
			{0, "a+ b+", "", 0}, {1000, "a- b+", "", 300}, {1300, "a- b+", "a", 0}, {2000, "b+", "", 0},
		},
		"forgotten while it is not listed": {
			{0, "a+", "", 0}, {1000, "", "", 0}, {2000, "a-", "", 0}, {3000, "a-", "", 0},
		},
		"forgotten while it is missing": {
			{0, "a+", "", 0}, {1000, "a-", "", 300}, {1100, "", "", 0}, {2000, "a-", "", 0},
		},
		"the next to confirm": {
			{0, "a+ b+", "", 0}, {1000, "a- b+", "", 300}, {1200, "a- b-", "", 100}, {1300, "a- b-", "a", 200},
			{1500, "a- b-", "a b", 0},
		},
		"in the order of the list": {
			{0, "a+ b+ c+", "", 0}, {1000, "c- a- b-", "", 300}, {1300, "b- c- a-", "b c a", 0},
		},
		"listed twice": {
			{0, "a+ a+", "", 0}, {1000, "a- a+", "", 0}, {2000, "a+ a-", "", 0}, {3000, "a- a-", "", 300},
			{4000, "a- a-", "a", 0},
		},
		"a heartbeat in between": {
			{0, "a+1", "", 0}, {1000, "a-1", "", 300}, {1300, "a-2", "", 0}, {1600, "a-2", "", 0}, {9000, "a-3", "", 0},
		},
		"locked after a heartbeat": {
			{0, "a+1", "", 0}, {1000, "a-1", "", 300}, {1300, "a-2", "", 0}, {2000, "a+3", "", 0},
			{3000, "a-3", "", 300}, {3300, "a-3", "a", 0},
		},
		"a time that goes back": {
			{5000, "a+", "", 0}, {6000, "a-", "", 300}, {2000, "a-", "", 300}, {2200, "a-", "", 100},
			{2300, "a-", "a", 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewDeathWatch(300 * time.Millisecond)
			for _, o := range observations {
				dead, again := w.Observe(time.UnixMilli(int64(o.at)), peers(o.peers))
				if strings.Join(dead, " ") != o.dead || again != time.Duration(o.again)*time.Millisecond {
					t.Errorf("at %d: %v are dead, again after %v; want %q and %d ms", o.at, dead, again, o.dead,
						o.again)
				}
			}
		})
	}
}

func TestDeathIsConfirmedAfterTheTimeGiven(t *testing.T) {
	w, at := NewDeathWatch(2*time.Second), time.UnixMilli(0)
	w.Observe(at, peers("a+"))
	if dead, again := w.Observe(at, peers("a-")); len(dead) != 0 || again != 2*time.Second {
		t.Errorf("%v are dead, again after %v", dead, again)
	}
	if dead, _ := w.Observe(at.Add(2*time.Second), peers("a-")); len(dead) != 1 {
		t.Errorf("%v are dead", dead)
	}
}
