package actors

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-go/millrace/internal/machine"
	"github.com/millrace-go/millrace/projection"
)

// A standstill is reported after StandsLong, whatever the class of the fault, and ends when the projection moves.
func TestProjectionThatDoesNotMoveAlthoughEventsWaitIsReported(t *testing.T) {
	unreadable := errors.New("a page cannot be read")
	live := machine.Status{Phase: machine.Live, Position: 5, Mark: 6}
	faulty := machine.Status{Phase: machine.Waiting, Position: 5, Mark: 6, Reason: unreadable, Faulty: true}
	starting := machine.Status{Phase: machine.Starting, Position: 3, Mark: 6}
	for name, test := range map[string]struct {
		last    machine.Status
		change  func(e *ProjectionEntry)
		moves   bool
		reason  string
		finding bool
	}{
		"a fault":                   {last: faulty, reason: unreadable.Error(), finding: true},
		"the next attempt after it": {last: starting, reason: unreadable.Error(), finding: true},
		"an attempt that waits for a slot": {
			last: live, change: func(e *ProjectionEntry) { e.Queued = true }, reason: unreadable.Error(), finding: true,
		},
		"it moved since":         {last: live, moves: true},
		"the events are handled": {last: machine.Status{Phase: machine.Live, Position: 6, Mark: 6}},
		"an event fails": {
			last: machine.Status{Phase: machine.Waiting, Position: 5, Mark: 6, Reason: errors.New("bad")},
		},
		"it waits for a person": {
			last: machine.Status{Phase: machine.Failed, Position: 5, Mark: 6, Reason: errors.New("bad")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, id := connectedRegistry(), projection.ID{Tenant: "acme", Name: "p", Partition: 1}
				show := func(s machine.Status, change func(e *ProjectionEntry)) {
					r.publish(id, func(e *ProjectionEntry) {
						e.Status = s
						if change != nil {
							change(e)
						}
					})
				}
				show(live, nil)
				for range 4 { // attempts fail again and again, and the position falls to the checkpoint in between
					show(faulty, nil)
					show(starting, nil)
					show(live, nil)
					<-time.After(StandsLong / 3)
				}
				if test.moves {
					show(machine.Status{Phase: machine.Live, Position: 6, Mark: 7}, nil)
				}
				show(test.last, test.change)
				found, count := r.Summary().Standing, r.Summary().StandingCount
				if s, _ := r.Standstill(id); s.Reason != test.reason || s.Fails != test.finding ||
					(len(found) == 1 && count == 1) != test.finding {
					t.Errorf("%+v, %+v", s, found)
				}
			})
		})
	}
}

// A handler that runs for long after a fault that has passed is no finding. Faults that go on are one, also while a
// handler runs.
func TestLongHandlerAfterAFaultIsNoFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, id := connectedRegistry(), projection.ID{Tenant: "acme", Name: "p", Partition: 1}
		show := func(phase machine.Phase, busy bool) {
			r.publish(id, func(e *ProjectionEntry) {
				e.Status = machine.Status{Phase: phase, Position: 5, Mark: 6}
				if phase == machine.Waiting {
					e.Status.Reason, e.Status.Faulty = errors.New("the server went away"), true
				}
				e.Busy = time.Time{}
				if busy {
					e.Busy = time.Now()
				}
			})
		}
		expect := func(when, reason string, finding bool) {
			t.Helper()
			s, _ := r.Standstill(id)
			if !strings.Contains(s.Reason, reason) || s.Fails != finding ||
				(len(r.Summary().Standing) == 1) != finding {
				t.Errorf("%s: %+v", when, s)
			}
		}
		show(machine.Live, true)
		<-time.After(2 * StandsLong) // the handler runs for long, and its commit fails
		expect("before the fault", "handler has not returned", false)
		show(machine.Waiting, false)
		expect("at the fault", "went away", false)
		<-time.After(5 * time.Second)
		show(machine.Live, true)
		for range 10 {
			expect("after the fault", "", false)
			<-time.After(StandsLong / 5)
		}
		expect("long after the fault", "handler has not returned", false)
		for range 4 { // each attempt fails
			show(machine.Waiting, false)
			<-time.After(StandsLong / 3)
			show(machine.Live, true)
		}
		expect("after many faults", "went away", true)
	})
}

// Without a fault, it depends on what the projection does whether a person should look at it.
func TestStandstillWithoutAFaultHasAReason(t *testing.T) {
	for reason, test := range map[string]struct {
		change func(e *ProjectionEntry)
		fails  bool
	}{
		"waits for a slot":         {func(e *ProjectionEntry) { e.Queued = true }, false},
		"handler has not returned": {func(e *ProjectionEntry) { e.Busy = time.Now() }, false},
		"read of its events":       {func(e *ProjectionEntry) { e.Busy, e.Reading = time.Now(), true }, true},
		"no error is known":        {func(*ProjectionEntry) {}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, id := connectedRegistry(), projection.ID{Tenant: "acme", Name: "p", Partition: 1}
			r.publish(id, func(e *ProjectionEntry) {
				e.Status = machine.Status{Phase: machine.Live, Position: 5, Mark: 6}
				test.change(e)
			})
			<-time.After(StandsLong - time.Second)
			if s, stands := r.Standstill(id); stands {
				t.Errorf("%s: too early: %+v", reason, s)
			}
			<-time.After(2 * time.Second)
			if s, stands := r.Standstill(id); !stands || !strings.Contains(s.Reason, reason) || s.Fails != test.fails ||
				(len(r.Summary().Standing) == 1) != test.fails {
				t.Errorf("%s: %+v", reason, s)
			}
			r.session.publish(func(e *SessionEntry) { e.Since = time.Now() }) // after an outage
			if s, stands := r.Standstill(id); stands {
				t.Errorf("%s: after an outage: %+v", reason, s)
			}
		})
	}
}

// A feed whose poll finds no events and meets no error is reported. A feed that waits for a slot is not.
func TestFeedWhoseReadDoesNotEndIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		entry FeedEntry
		held  int
	}{"reads": {FeedEntry{Polling: true}, 1}, "queued": {FeedEntry{Polling: true, Queued: true}, 0},
		"idle": {FeedEntry{Mark: 7}, 0}} {
		synctest.Test(t, func(t *testing.T) {
			r := connectedRegistry()
			r.feeds.publish("acme", func(e *FeedEntry) { *e = test.entry })
			if held := r.Summary().Held; len(held) != 0 {
				t.Errorf("%s: too early: %+v", name, held)
			}
			<-time.After(StandsLong)
			if held := r.Summary().Held; len(held) != test.held {
				t.Errorf("%s: %+v", name, held)
			}
		})
	}
}

func connectedRegistry() *Registry {
	r := newRegistry()
	r.session.publish(func(e *SessionEntry) { e.Connected, e.Since = true, time.Now() })
	return r
}
