package pgstore

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRestAfterANotificationFollowsItsCost(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct{ before, passed, cost, want time.Duration }{
		"the first is free after a quiet time":     {0, time.Hour, ms / 2, -5 * ms},
		"the time saved has a limit":               {-7 * ms, 9 * ms, 0, -10 * ms},
		"each takes ten times its cost":            {-5 * ms, ms / 2, ms / 4, -3 * ms},
		"what passed is earned":                    {0, 2 * ms, ms / 4, ms / 2},
		"a rest that was kept is no debt":          {ms, ms, ms / 10, ms},
		"a rest that was not kept is":              {ms, ms / 2, ms / 10, 3 * ms / 2},
		"a rest is short, whatever was spent":      {ms, ms, ms, 2 * ms},
		"a fault of seconds is no reason for more": {-10 * ms, 5 * time.Second, 5 * time.Second, 2 * ms},
	} {
		if rest := restAfter(c.before, c.passed, c.cost); rest != c.want {
			t.Errorf("%s: got %v, want %v", name, rest, c.want)
		}
	}
}

// notification is what a notifier has sent at once.
type notification struct {
	begun    time.Time
	position int64
}

// notifying returns a notifier whose notifications take cost, and a function that closes it and returns those that it
// sent.
func notifying(cost time.Duration) (*notifier, func() []notification) {
	var sent []notification
	n := newNotifier(&database{})
	n.send = func(payloads []string) error {
		_, position := announced(payloads[0])
		sent = append(sent, notification{time.Now(), position})
		<-time.After(cost)
		return nil
	}
	return n, func() []notification { n.close(); return sent }
}

// appendEvery announces count appends, and returns when each was announced. The intervals are used in turn.
func appendEvery(n *notifier, count int, intervals ...time.Duration) []time.Time {
	times := make([]time.Time, 0, count)
	for i := range count {
		<-time.After(intervals[i%len(intervals)])
		times = append(times, time.Now())
		n.appended("t", int64(i+1), nil)
	}
	return times
}

func TestCheapNotificationsAreSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, sent := notifying(150 * time.Microsecond)
		appended := appendEvery(n, 500, 500*time.Microsecond, 3500*time.Microsecond, 1100*time.Microsecond,
			2900*time.Microsecond)
		all := sent()
		if len(all) != len(appended) {
			t.Fatalf("%d notifications of %d appends", len(all), len(appended))
		}
		for i, at := range appended {
			if delay := all[i].begun.Sub(at); delay != 0 {
				t.Errorf("append %d was announced after %v", i, delay)
			}
		}
	})
}

// While appends follow each other quickly, notifications are limited by their cost. Each append is announced within a
// rest.
func TestCostlyNotificationsAreFewAndLoseNoAppend(t *testing.T) {
	for cost, most := range map[time.Duration]int{
		100 * time.Microsecond: 1000 + 12, // a tenth of a second, and the time saved
		time.Millisecond:       334 + 2,   // one in 3 ms
		10 * time.Millisecond:  84 + 1,    // one in 12 ms
	} {
		synctest.Test(t, func(t *testing.T) {
			n, sent := notifying(cost)
			appended := appendEvery(n, 20_000, 50*time.Microsecond)
			all := sent()
			if len(all) > most || len(all) < most*9/10 {
				t.Errorf("%v: %d notifications in a second, want about %d and no more", cost, len(all), most)
			}
			next := 0
			for i, at := range appended {
				for next < len(all) && all[next].position <= int64(i) {
					next++
				}
				if next == len(all) {
					t.Fatalf("%v: append %d was not announced", cost, i)
				}
				if delay := all[next].begun.Sub(at); delay > cost+notifyRest {
					t.Errorf("%v: append %d was announced after %v", cost, i, delay)
				}
			}
		})
	}
}

func TestClosedNotifierSendsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, sent := notifying(2 * time.Millisecond)
		begun := time.Now()
		n.appended("t", 1, nil)
		<-time.After(3 * time.Millisecond)
		n.appended("t", 2, nil) // in the rest
		if all := sent(); len(all) != 2 || all[1].position != 2 || all[1].begun.Sub(begun) != 3*time.Millisecond {
			t.Errorf("sent %+v since %v", all, begun)
		}
	})
}
