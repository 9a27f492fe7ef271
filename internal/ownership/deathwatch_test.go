package ownership

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"pgregory.net/rapid"
)

// look is one look: peers as "a+ b-2", where + is a lock that is held and a number the last heartbeat, and what is to come
// of it.
type look struct {
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
	for name, looks := range map[string][]look{
		"no peers":                         {{0, "", "", 0}, {1000, "", "", 0}},
		"all alive":                        {{0, "a+ b+", "", 0}, {1000, "a+ b+", "", 0}},
		"dead at the second look":          {{0, "a+ b+", "", 0}, {1000, "a- b+", "", 300}, {1300, "a- b+", "a", 0}},
		"never seen":                       {{0, "a-", "", 0}, {1000, "a-", "", 0}, {9000, "a-", "", 0}},
		"first seen late":                  {{0, "a-", "", 0}, {1000, "a+", "", 0}, {2000, "a-", "", 300}, {2400, "a-", "a", 0}},
		"one look is not enough":           {{0, "a+", "", 0}, {9000, "a-", "", 300}},
		"looks too near":                   {{0, "a+", "", 0}, {1000, "a-", "", 300}, {1100, "a-", "", 200}, {1299, "a-", "", 1}, {1300, "a-", "a", 0}},
		"seen in between":                  {{0, "a+", "", 0}, {1000, "a-", "", 300}, {1100, "a+", "", 0}, {1400, "a-", "", 300}, {1700, "a-", "a", 0}},
		"again while it is missing":        {{0, "a+", "", 0}, {1000, "a-", "", 300}, {1300, "a-", "a", 0}, {1310, "a-", "a", 0}},
		"alive after all":                  {{0, "a+", "", 0}, {1000, "a-", "", 300}, {1300, "a-", "a", 0}, {1400, "a+", "", 0}, {1500, "a-", "", 300}},
		"marked dead":                      {{0, "a+ b+", "", 0}, {1000, "a- b+", "", 300}, {1300, "a- b+", "a", 0}, {2000, "b+", "", 0}},
		"forgotten while it is not listed": {{0, "a+", "", 0}, {1000, "", "", 0}, {2000, "a-", "", 0}, {3000, "a-", "", 0}},
		"forgotten while it is missing":    {{0, "a+", "", 0}, {1000, "a-", "", 300}, {1100, "", "", 0}, {2000, "a-", "", 0}},
		"the next to confirm":              {{0, "a+ b+", "", 0}, {1000, "a- b+", "", 300}, {1200, "a- b-", "", 100}, {1300, "a- b-", "a", 200}, {1500, "a- b-", "a b", 0}},
		"in the order of the list":         {{0, "a+ b+ c+", "", 0}, {1000, "c- a- b-", "", 300}, {1300, "b- c- a-", "b c a", 0}},
		"listed twice":                     {{0, "a+ a+", "", 0}, {1000, "a- a+", "", 0}, {2000, "a+ a-", "", 0}, {3000, "a- a-", "", 300}, {4000, "a- a-", "a", 0}},
		"a heartbeat in between":           {{0, "a+1", "", 0}, {1000, "a-1", "", 300}, {1300, "a-2", "", 0}, {1600, "a-2", "", 0}, {9000, "a-3", "", 0}},
		"locked after a heartbeat":         {{0, "a+1", "", 0}, {1000, "a-1", "", 300}, {1300, "a-2", "", 0}, {2000, "a+3", "", 0}, {3000, "a-3", "", 300}, {3300, "a-3", "a", 0}},
		"a time that goes back":            {{5000, "a+", "", 0}, {6000, "a-", "", 300}, {2000, "a-", "", 300}, {2200, "a-", "", 100}, {2300, "a-", "a", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewDeathWatch(300 * time.Millisecond)
			for _, l := range looks {
				dead, again := w.Observe(time.UnixMilli(int64(l.at)), peers(l.peers))
				if strings.Join(dead, " ") != l.dead || again != time.Duration(l.again)*time.Millisecond {
					t.Errorf("at %d: %v are dead, again after %v; want %q and %d ms", l.at, dead, again, l.dead, l.again)
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

// witnessed is an observation in a history.
type witnessed struct {
	at    time.Time
	peers map[string]bool
}

// fromHistory returns by the whole history whether a peer is dead at its last observation, and else how soon it might be.
func fromHistory(history []witnessed, id string, confirm time.Duration) (dead bool, again time.Duration) {
	last := history[len(history)-1]
	var misses []time.Time
	for _, w := range slices.Backward(history) {
		locked, listed := w.peers[id]
		switch {
		case !listed:
			return false, 0
		case !locked:
			misses = append(misses, w.at)
			continue
		case len(misses) == 0:
			return false, 0
		}
		for _, at := range misses {
			if last.at.Sub(at) >= confirm {
				return true, 0
			}
		}
		return false, confirm - last.at.Sub(misses[len(misses)-1])
	}
	return false, 0
}

// TestDeathWatchAgreesWithTheHistory compares the watch with a model that remembers everything. -rapid.seed=N repeats a failure.
func TestDeathWatchAgreesWithTheHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		confirm := time.Duration(rapid.IntRange(1, 5).Draw(t, "confirm"))
		w, at := NewDeathWatch(confirm), time.UnixMilli(1)
		var history []witnessed
		for range rapid.IntRange(1, 40).Draw(t, "looks") {
			at = at.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "later")))
			now := witnessed{at, make(map[string]bool)}
			var list []engine.Peer
			for i := range 3 {
				// Long spells of each state, or few would ever be dead.
				id, before := fmt.Sprintf("n%d", i), 0
				if len(history) > 0 {
					if locked, listed := history[len(history)-1].peers[id]; listed {
						before = map[bool]int{true: 1, false: 2}[locked]
					}
				}
				state := rapid.SampledFrom([]int{before, before, before, 0, 1, 1, 2, 2}).Draw(t, "state")
				if state > 0 {
					now.peers[id] = state == 1
					list = append(list, engine.Peer{ID: id, Locked: state == 1})
				}
			}
			history = append(history, now)

			var dead []string
			var again time.Duration
			for _, p := range list {
				gone, left := fromHistory(history, p.ID, confirm)
				if gone {
					dead = append(dead, p.ID)
				}
				if left > 0 && (again == 0 || left < again) {
					again = left
				}
			}
			if d, a := w.Observe(at, list); !slices.Equal(d, dead) || a != again {
				t.Fatalf("%v are dead, again after %d; by the history %v and %d", d, a, dead, again)
			}
		}
	})
}
