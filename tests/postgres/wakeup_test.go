package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// never is longer than any test: what comes sooner did not come by polling.
const never = time.Hour

// appendArrives appends an event and tells whether it arrives in time.
func (b *bundle) appendArrives(rt *millrace.Runtime, from *pgstore.Store, within time.Duration) error {
	b.T.Helper()
	result, err := from.Append(b.Ctx, "a", event.Any, event.Event{Type: "counted"})
	b.Must(err)
	ctx, cancel := context.WithTimeout(b.Ctx, within)
	defer cancel()
	return rt.WaitFor(ctx, millrace.ProjectionID{Name: "p"}, result.Positions[0])
}

func (b *bundle) mustArrive(rt *millrace.Runtime, from *pgstore.Store) {
	b.T.Helper()
	b.Must(b.appendArrives(rt, from, 20*time.Second))
}

// mustNotArrive is the control: without the way that is under test the event would not have arrived.
func (b *bundle) mustNotArrive(rt *millrace.Runtime, from *pgstore.Store) {
	b.T.Helper()
	if err := b.appendArrives(rt, from, 500*time.Millisecond); err == nil {
		b.T.Fatal("the event arrived by some other way")
	}
}

func TestNotificationBringsEventsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	// This store's own notifications, which come late, would bring what is to arrive by none.
	b := setup(t, pgstore.Options{NoNotify: true})
	rt := b.Running(millrace.Config{PollInterval: never}, b.Recorders("p")...)
	b.mustArrive(rt, b.store)
	b.mustNotArrive(rt, b.elsewhere(pgstore.Options{NoNotify: true}))
	b.mustArrive(rt, b.elsewhere(pgstore.Options{}))
	b.Verify("p")
}

func TestEventsArriveAtOnceAfterTheSessionConnectionWasTerminated(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.Running(millrace.Config{PollInterval: never}, b.Recorders("p")...)
	other := b.elsewhere(pgstore.Options{})
	b.mustArrive(rt, other)
	for range 5 {
		standsAgain := b.terminateSession(rt)
		// Appended while nobody listens: it must be caught up on by itself.
		b.mustArrive(rt, other)
		standsAgain()
		b.mustArrive(rt, other)
	}
	b.Verify("p")
}

// terminateSession ends the session connection of a runtime. What it returns waits until there is another one.
func (b *bundle) terminateSession(rt *millrace.Runtime) (standsAgain func()) {
	b.T.Helper()
	terminated := time.Now()
	var n int
	err := b.store.Pool().QueryRow(b.Ctx, `select count(pg_terminate_backend(l.pid)) from pg_locks l
		where l.locktype = 'advisory' and l.objsubid = 1 and l.database = (select oid from pg_database where datname = current_database())`).Scan(&n)
	if err != nil || n != 1 {
		b.T.Fatalf("%d session connections terminated: %v", n, err)
	}
	return func() {
		b.T.Helper()
		b.Eventually("the session stands again", func() bool {
			status, err := rt.Status(b.Ctx)
			return err == nil && status.Session.Connected && status.Session.Since.After(terminated)
		})
	}
}

func TestPollBringsEventsWithoutNotificationAfterTheSessionConnectionWasTerminated(t *testing.T) {
	t.Parallel()
	for name, poll := range map[string]time.Duration{"polling": 100 * time.Millisecond, "not polling": never} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, pgstore.Options{NoNotify: true})
			rt := b.Running(millrace.Config{PollInterval: poll}, b.Recorders("p")...)
			other := b.elsewhere(pgstore.Options{NoNotify: true})
			b.mustArrive(rt, b.store)
			for range 3 {
				standsAgain := b.terminateSession(rt)
				b.mustArrive(rt, other)
				standsAgain()
				if poll == never {
					// The control. What the new connection had everything look for may still bring the first of them.
					b.Eventually("an event does not arrive", func() bool { return b.appendArrives(rt, other, 500*time.Millisecond) != nil })
					b.mustArrive(rt, b.store)
					continue
				}
				for range 5 {
					b.mustArrive(rt, other)
				}
			}
			b.Verify("p")
		})
	}
}
