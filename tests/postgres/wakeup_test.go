package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// never is longer than any test: what comes sooner did not come by polling.
const never = time.Hour

// elsewhere is a second store over the same database, as in another process: its appends wake nobody here directly.
func (b *bundle) elsewhere(opts pgstore.Options) *pgstore.Store {
	b.t.Helper()
	store, err := pgstore.Open(b.ctx, b.dsn, opts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(store.Close)
	return store
}

// appendArrives appends an event and tells whether it arrives in time.
func (b *bundle) appendArrives(rt *millrace.Runtime, from *pgstore.Store, within time.Duration) error {
	b.t.Helper()
	result, err := from.Append(b.ctx, "a", event.Any, event.Event{Type: "counted"})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	return rt.WaitFor(ctx, millrace.ProjectionID{Name: "p"}, result.Positions[0])
}

func (b *bundle) mustArrive(rt *millrace.Runtime, from *pgstore.Store) {
	b.t.Helper()
	if err := b.appendArrives(rt, from, 20*time.Second); err != nil {
		b.t.Fatal(err)
	}
}

// mustNotArrive is the control: without the way that is under test the event would not have arrived.
func (b *bundle) mustNotArrive(rt *millrace.Runtime, from *pgstore.Store) {
	b.t.Helper()
	if err := b.appendArrives(rt, from, 500*time.Millisecond); err == nil {
		b.t.Fatal("the event arrived by some other way")
	}
}

func TestNotificationBringsEventsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	// This store's own notifications, which come late, would bring what is to arrive by none.
	b := setup(t, pgstore.Options{NoNotify: true})
	rt := b.runtime(millrace.Config{PollInterval: never}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	b.start(rt)
	b.mustArrive(rt, b.store)
	b.mustNotArrive(rt, b.elsewhere(pgstore.Options{NoNotify: true}))
	b.mustArrive(rt, b.elsewhere(pgstore.Options{}))
	b.verify("p")
}

func TestEventsArriveAtOnceAfterTheSessionConnectionWasTerminated(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{PollInterval: never}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	b.start(rt)
	other := b.elsewhere(pgstore.Options{})
	b.mustArrive(rt, other)
	for range 5 {
		standsAgain := b.terminateSession(rt)
		// Appended while nobody listens: it must be caught up on by itself.
		b.mustArrive(rt, other)
		standsAgain()
		b.mustArrive(rt, other)
	}
	b.verify("p")
}

// terminateSession ends the session connection of a runtime. What it returns waits until there is another one.
func (b *bundle) terminateSession(rt *millrace.Runtime) (standsAgain func()) {
	b.t.Helper()
	terminated := time.Now()
	var n int
	err := b.store.Pool().QueryRow(b.ctx, `select count(pg_terminate_backend(l.pid)) from pg_locks l
		where l.locktype = 'advisory' and l.objsubid = 1 and l.database = (select oid from pg_database where datname = current_database())`).Scan(&n)
	if err != nil || n != 1 {
		b.t.Fatalf("%d session connections terminated: %v", n, err)
	}
	return func() {
		b.t.Helper()
		b.eventually("the session stands again", func() bool {
			status, err := rt.Status(b.ctx)
			return err == nil && status.Session.Connected && status.Session.Since.After(terminated)
		})
	}
}

func TestPollBringsEventsWithoutNotificationAfterTheSessionConnectionWasTerminated(t *testing.T) {
	t.Parallel()
	for name, poll := range map[string]time.Duration{"polling": 100 * time.Millisecond, "not polling": never} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, pgstore.Options{NoNotify: true})
			rt := b.runtime(millrace.Config{PollInterval: poll}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
			b.start(rt)
			other := b.elsewhere(pgstore.Options{NoNotify: true})
			b.mustArrive(rt, b.store)
			for range 3 {
				standsAgain := b.terminateSession(rt)
				b.mustArrive(rt, other)
				standsAgain()
				if poll == never {
					// The control. What the new connection had everything look for may still bring the first of them.
					b.eventually("an event does not arrive", func() bool { return b.appendArrives(rt, other, 500*time.Millisecond) != nil })
					b.mustArrive(rt, b.store)
					continue
				}
				for range 5 {
					b.mustArrive(rt, other)
				}
			}
			b.verify("p")
		})
	}
}

func TestForeignWriterWakesByTheDocumentedNotify(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	rt := b.runtime(millrace.Config{PollInterval: never}, millrace.Projection{Name: "p", Handler: pgstore.Batch(record("p"))})
	b.start(rt)
	b.mustArrive(rt, b.store)
	err := pgx.BeginFunc(b.ctx, b.store.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(b.ctx, `insert into millrace_default.streams values ('foreign', 1)`); err != nil {
			return err
		}
		if _, err := tx.Exec(b.ctx, `insert into millrace_default.events (stream_id, stream_version, type, body) values ('foreign', 1, 'counted', '{}')`); err != nil {
			return err
		}
		_, err := tx.Exec(b.ctx, `select pg_notify('millrace_wake', 'default')`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	var head int64
	if err := b.store.Pool().QueryRow(ctx, "select max(global_seq) from millrace_default.events").Scan(&head); err != nil {
		t.Fatal(err)
	}
	if err := rt.WaitFor(ctx, millrace.ProjectionID{Name: "p"}, head); err != nil {
		t.Fatal(err)
	}
	b.verify("p")
}
