package pgstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/projection"
)

// incarnation reads the server's incarnation as a read of events does.
func incarnation(t *testing.T, store *Store) engine.Incarnation {
	t.Helper()
	page := must(store.port().Read(testContext(t), projection.DefaultTenant, engine.ReadRange{UpTo: 1, Limit: 1}))(t)
	return page.Incarnation
}

func TestIncarnationOutlivesARestartAndEndsWithACrash(t *testing.T) {
	t.Parallel()
	server, store := ownServer(t, nil)
	last := incarnation(t, store)
	for _, life := range []struct {
		name string
		end  func() error
		same bool
	}{
		{"nothing", func() error { return nil }, true},
		{"fast restart", func() error { return server.Restart(testContext(t), "fast") }, true},
		{"immediate stop", func() error { return server.Restart(testContext(t), "immediate") }, false},
		{
			"kill -9 of the server",
			func() error { return errors.Join(server.Kill(), server.StartAgain(testContext(t))) }, false,
		},
		{"kill -9 of a backend", func() error { return server.CrashBackend(testContext(t)) }, false},
	} {
		if err := life.end(); err != nil {
			t.Fatal(life.name, err)
		}
		store.pool.Reset()
		now := incarnation(t, store)
		if now == 0 || (now == last) != life.same {
			t.Errorf("%s: incarnation %d after %d", life.name, now, last)
		}
		last = now
	}
	// A dump of the data alone brings the row back in the same table.
	mustExec(t, store,
		"create temporary table data as select * from millrace.incarnation; truncate millrace.incarnation; "+
			"insert into millrace.incarnation select * from data")
	if now := incarnation(t, store); now == last {
		t.Error("restored data have the incarnation of the server that they were taken from")
	}
	last = incarnation(t, store)
	// A dump of everything brings it back in a table of another oid.
	mustExec(t, store,
		"create temporary table dumped as select * from millrace.incarnation; drop table millrace.incarnation; "+
			"create unlogged table millrace.incarnation (like dumped); insert into millrace.incarnation select * from dumped")
	if now := incarnation(t, store); now == last {
		t.Error("a restored dump has the incarnation of the server that it was taken from")
	}
}

func TestPromotionBeginsAnIncarnation(t *testing.T) {
	t.Parallel()
	server, store := ownServer(t, nil)
	before := incarnation(t, store)
	standby := must(server.Standby(testContext(t), pgtest.StandbyOptions{}))(t)
	t.Cleanup(func() { _ = standby.Stop(context.Background()) })
	noError(t, errors.Join(server.CatchUp(testContext(t), standby), server.Kill(), standby.Promote(testContext(t))))
	if now := incarnation(t, openStore(t, standby.DSN("postgres"), Options{NoNotify: true})); now == before {
		t.Error("the promoted standby has the incarnation of its primary")
	}
}

// Any number of clients may find that the server has no incarnation yet.
func TestClientsAgreeOnTheIncarnationAfterACrash(t *testing.T) {
	t.Parallel()
	_, store := ownServer(t, nil)
	mustExec(t, store, "truncate millrace.incarnation")
	found := make(chan engine.Incarnation, 16)
	for range cap(found) {
		go func() {
			page, err := store.port().Read(context.Background(), projection.DefaultTenant,
				engine.ReadRange{UpTo: 1, Limit: 1})
			if err != nil {
				t.Error(err)
			}
			found <- page.Incarnation
		}()
	}
	want := <-found
	for range cap(found) - 1 {
		if got := <-found; got != want || got == 0 {
			t.Errorf("incarnations %d and %d", got, want)
		}
	}
}

// crashed is an owner of the default tenant's projection, whose server came back without the last events that it read.
// Their positions were assigned again, to other events.
func crashed(t *testing.T) (o *owner, lost []event.Envelope) {
	t.Helper()
	server, store := ownServer(t, pgtest.AsyncCommits(nil))
	makeModel(t, store)
	o = claimAs(t, store, projection.DefaultTenant)
	mustAppend(t, store.tenant, "kept", event.Any, someEvents(2)...)
	o.refresh()
	mustExec(t, store, "checkpoint")
	for range 5 {
		noError(t, server.HoldWAL(testContext(t)))
		mustAppend(t, store.tenant, "lost", event.Any, someEvents(5)...)
		events, err := o.pending()
		if err != nil || len(events) < 7 {
			t.Fatalf("%d events, %v", len(events), err)
		}
		noError(t, server.CrashBackend(testContext(t)))
		store.pool.Reset()
		again := mustAppend(t, store.tenant, "new", event.Any, someEvents(5)...).Positions
		if slices.Equal(again, []int64{3, 4, 5, 6, 7}) {
			return o, events
		}
		t.Logf("after the crash positions %v were handed out", again)
		mustExec(t, store, "truncate millrace_default.events, millrace_default.streams restart identity; checkpoint")
		mustAppend(t, store.tenant, "kept", event.Any, someEvents(2)...)
		mustExec(t, store, "checkpoint")
		o.refresh()
	}
	t.Fatal("no position was handed out again in 5 crashes: the test shows nothing")
	return nil, nil
}

func TestNothingReadBeforeACrashIsWrittenAfterIt(t *testing.T) {
	t.Parallel()
	o, lost := crashed(t)
	ctx, port, lease := testContext(t), o.store.port(), o.lease
	failed := lost[3]
	failure := projection.Failure{Projection: lease.ID, Event: failed, Attempt: 1, Err: errors.New("bad")}
	letter := projection.DeadLetter{
		Position: failed.Position, Stream: failed.Stream, Version: failed.Version, Type: failed.Type, Error: "bad",
	}
	batch := engine.Batch{Events: lost, To: lost[len(lost)-1].Position}
	delivered := port.deliver(func(context.Context, handler.Delivery) error {
		t.Error("an event that does not exist was delivered")
		return nil
	}, engine.DeliverOptions{})
	for name, write := range map[string]func() error{
		"apply":         func() error { return port.apply(write, engine.ApplyOptions{})(ctx, lease, batch) },
		"deliver":       func() error { return delivered(ctx, lease, batch) },
		"park":          func() error { return o.store.plane().Park(ctx, lease, letter, false) },
		"skip":          func() error { return o.store.plane().Skip(ctx, lease, failed.Position) },
		"begin attempt": func() error { return o.store.plane().BeginAttempt(ctx, lease, failed.Position, 1) },
		"halt":          func() error { return o.store.plane().Halt(ctx, lease, "bad") },
		"set failed":    func() error { return o.store.plane().SetFailed(ctx, lease, "bad") },
		"fail replay": func() error {
			return o.store.plane().FailReplay(ctx, lease, failedReplay(engine.Replay{}, errors.New("bad"), ""))
		},
		"record failure": func() error { _, err := o.store.plane().RecordFailure(ctx, lease, failure, 0); return err },
		"discard":        func() error { _, err := o.store.plane().Discard(ctx, lease, 1); return err },
		"begin replay": func() error {
			_, err := o.store.plane().BeginReplay(ctx, lease, engine.ReplayRequest{Command: 1})
			return err
		},
	} {
		err := write()
		if !errors.Is(err, event.ErrIncarnationChanged) || port.Classify(err).Class != faults.Infrastructure {
			t.Errorf("%s: %v", name, err)
		}
	}
	advance := []engine.Advance{{Lease: lease, To: batch.To}}
	if moved, err := port.Advance(ctx, advance); err != nil || len(moved) != 0 {
		t.Errorf("advance: %v, %v", moved, err)
	}
	if o.checkpoint() != 0 {
		t.Errorf("the checkpoint is %d", o.checkpoint())
	}
	// The control: after another read, the events that exist now are applied.
	o.refresh()
	noError(t, o.apply(write, engine.ApplyOptions{}))
	o.applied(7)
	// The lease is released nevertheless, and its checkpoint is not moved.
	noError(t, port.Release(ctx, []engine.Advance{{Lease: lease, To: 99}}))
	if o.checkpoint() != 7 {
		t.Errorf("given back at %d", o.checkpoint())
	}
}

func TestTailStartsAgainAfterACrash(t *testing.T) {
	t.Parallel()
	for name, appended := range map[string]int{"without new events": 0, "new events pass the mark": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, store := ownServer(t, pgtest.AsyncCommits(nil))
			head := mustAppend(t, store.tenant, "kept", event.Any, someEvents(1)...).Positions[0]
			mustExec(t, store, "checkpoint")
			f := followTail(t, store, projection.DefaultTenant)
			noError(t, server.HoldWAL(testContext(t)))
			mustAppend(t, store.tenant, "lost", event.Any, someEvents(5)...)
			f.until(t, "the mark is 6", func(u engine.TailUpdate) bool { return u.Mark == 6 })
			before := f.in
			noError(t, server.CrashBackend(testContext(t)))
			store.pool.Reset()
			if appended > 0 {
				head = mustAppend(t, store.tenant, "new", event.Any, someEvents(appended)...).Positions[appended-1]
			}
			u, err := f.tail.Poll(testContext(t))
			if err != nil || u.Incarnation == before || u.Mark != head {
				t.Fatalf("%+v, %v, want the mark at %d", u, err, head)
			}
		})
	}
}

// moving returns a store whose new connections go to the server that the test selects, as with an address that moves.
func moving(t *testing.T, to *atomic.Pointer[pgtest.Server]) *Store {
	t.Helper()
	config := must(pgxpool.ParseConfig(to.Load().DSN("postgres")))(t)
	config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
		now, err := pgx.ParseConfig(to.Load().DSN("postgres"))
		if err == nil {
			conn.Host, conn.Port, conn.Fallbacks = now.Host, now.Port, nil
		}
		return err
	}
	pool := must(pgxpool.NewWithConfig(testContext(t), config))(t)
	t.Cleanup(pool.Close)
	store := must(OpenPool(testContext(t), pool, Options{NoNotify: true}))(t)
	t.Cleanup(store.Close)
	return store
}

func TestReadFromAStandbyIsRefused(t *testing.T) {
	t.Parallel()
	server, primary := ownServer(t, nil)
	mustAppend(t, primary.tenant, "a", event.Any, someEvents(3)...)
	standby := must(server.Standby(testContext(t), pgtest.StandbyOptions{}))(t)
	t.Cleanup(func() { _ = standby.Stop(context.Background()) })
	noError(t, errors.Join(server.CatchUp(testContext(t), standby), standby.Detach(testContext(t))))
	var to atomic.Pointer[pgtest.Server]
	to.Store(server)
	store := moving(t, &to)
	f := followTail(t, store, projection.DefaultTenant)
	lease := claimAs(t, store, projection.DefaultTenant).lease
	mustAppend(t, primary.tenant, "a", event.Any, someEvents(4)...) // the standby does not have these
	f.until(t, "the mark is 7", func(u engine.TailUpdate) bool { return u.Mark == 7 })

	to.Store(standby)
	store.pool.Reset()
	port := store.port()
	for name, read := range map[string]func() error{
		"read": func() error {
			_, err := port.Read(testContext(t), projection.DefaultTenant, engine.ReadRange{UpTo: 7, Limit: 10})
			return err
		},
		"heads": func() error {
			_, err := port.Heads(testContext(t), []string{projection.DefaultTenant})
			return err
		},
		"leases": func() error { _, err := port.Leases(testContext(t), []int32{lease.Row}); return err },
		"parked streams": func() error {
			_, err := store.plane().ParkedStreams(testContext(t), lease, []string{"a"})
			return err
		},
		"next command": func() error { _, err := store.plane().NextCommand(testContext(t), lease, false); return err },
		"tail":         func() error { _, err := f.tail.Poll(testContext(t)); return err },
	} {
		if err := read(); !errors.Is(err, event.ErrNotPrimary) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A connection that led to the standby is not used again.
	to.Store(server)
	for {
		page, err := port.Read(testContext(t), projection.DefaultTenant, engine.ReadRange{UpTo: 7, Limit: 10})
		if err == nil {
			if len(page.Events) != 7 {
				t.Errorf("%d events", len(page.Events))
			}
			return
		}
		if !errors.Is(err, event.ErrNotPrimary) {
			t.Fatal(err)
		}
	}
}

func TestSeveralHostsLeadToThePrimary(t *testing.T) {
	t.Parallel()
	server, primary := ownServer(t, nil)
	standby := must(server.Standby(testContext(t), pgtest.StandbyOptions{}))(t)
	t.Cleanup(func() { _ = standby.Stop(context.Background()) })
	hosts := pgtest.HostsDSN("postgres", "", standby.Address(), server.Address())
	store := must(Open(testContext(t), hosts, Options{NoNotify: true}))(t)
	defer store.Close()
	if got, want := incarnation(t, store), incarnation(t, primary); got != want {
		t.Errorf("incarnation %d, want that of the primary: %d", got, want)
	}
	session := must(store.port().Connect(testContext(t), aNode()))(t)
	noError(t, session.Close(testContext(t)))
	// A pool of the caller's has to ask for that itself.
	for attrs, refused := range map[string]bool{"": true, "any": true, "read-write": false, "primary": false} {
		pool := must(pgxpool.New(testContext(t), pgtest.HostsDSN("postgres",
			attrs, standby.Address(), server.Address())))(t)
		store, err := OpenPool(testContext(t), pool, Options{})
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "target_session_attrs=read-write") {
			t.Errorf("target_session_attrs %q: %v", attrs, err)
		}
		if err == nil {
			store.Close()
		}
		pool.Close()
	}
}

// A promotion without fencing leaves two primaries, and a pool may have connections to both.
func TestLocksOfAnotherServerSettleNothing(t *testing.T) {
	t.Parallel()
	server, _ := ownServer(t, nil)
	standby := must(server.Standby(testContext(t), pgtest.StandbyOptions{}))(t)
	t.Cleanup(func() { _ = standby.Stop(context.Background()) })
	noError(t, errors.Join(server.CatchUp(testContext(t), standby), standby.Promote(testContext(t))))
	var to atomic.Pointer[pgtest.Server]
	to.Store(standby)
	store := moving(t, &to)
	f := followTail(t, store, projection.DefaultTenant)
	promoted := openStore(t, standby.DSN("postgres"), Options{NoNotify: true})
	tx := openTx(t, promoted)
	gap := appendIn(t, tx, promoted.tenant, "gap", 1)
	mustAppend(t, promoted.tenant, "seen", event.Any, someEvents(1)...)
	if u, err := f.poll(testContext(t)); err != nil || u.Mark >= gap[0] {
		t.Fatalf("%+v, %v", u, err)
	}
	to.Store(server)
	store.pool.Reset()
	if _, err := f.tail.(*tailPoller).scan(testContext(t)); !errors.Is(err, event.ErrIncarnationChanged) {
		t.Errorf("the old primary was asked who holds the gap at %d: %v", gap[0], err)
	}
}

func TestIncarnationThatWouldOutliveACrashIsRefused(t *testing.T) {
	t.Parallel()
	_, store := ownServer(t, nil)
	mustExec(t, store, "alter table millrace.incarnation set logged")
	_, err := store.port().Connect(testContext(t), aNode())
	if err == nil || !strings.Contains(err.Error(), "set unlogged") ||
		store.port().Classify(err).Class != faults.Configuration {
		t.Fatal(err)
	}
	mustExec(t, store, "alter table millrace.incarnation set unlogged")
	session := must(store.port().Connect(testContext(t), aNode()))(t)
	noError(t, session.Close(testContext(t)))
}
