package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
)

// survived returns what is wrong with what a projection applied, compared with the events of a type that the server still has. A
// position may belong to another event by now, so that streams and versions are compared as well.
func (b *bundle) survived(name, eventType string) error {
	var missing, foreign int
	err := b.store.Pool().QueryRow(b.ctx, `
		with a as (select position, stream, version from public.applied where projection = $1),
		     e as (select global_seq, stream_id, stream_version from millrace_default.events where type = $2)
		select (select count(*) from (select * from e except all select * from a) missing),
		       (select count(*) from (select * from a except all select * from e) others)`, name, eventType).Scan(&missing, &foreign)
	if err == nil && missing+foreign > 0 {
		err = fmt.Errorf("%s: %d events that exist are not applied, %d that do not exist are", name, missing, foreign)
	}
	return err
}

// TestQueuedWorkDoesNotOutliveTheServerThatItWasReadFrom crashes a server that loses asynchronous commits, while the events
// of one projection wait for a slot. Then the positions are handed out again.
func TestQueuedWorkDoesNotOutliveTheServerThatItWasReadFrom(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{Settings: pgtest.AsyncCommits(map[string]string{"full_page_writes": "off"})})
	b := setupAt(t, server.DSN("postgres"), pgstore.Options{})
	// A call holds the slot until the channel that it takes is closed. A call after the crash takes none.
	hold, entered := make(chan chan struct{}, 1), make(chan struct{})
	holds := func(ctx context.Context, _ pgx.Tx, _ []event.Envelope) error {
		select {
		case until := <-hold:
			entered <- struct{}{}
			select {
			case <-until:
			case <-ctx.Done():
			}
		default:
		}
		return ctx.Err()
	}
	rt := b.runtime(millrace.Config{MaxBatches: 1}, millrace.Projection{Name: "holds", Handler: pgstore.Batch(holds), Types: []string{"hold"}},
		millrace.Projection{Name: "queued", Handler: pgstore.Batch(record("queued")), Types: []string{"counted"}})
	b.start(rt)
	queued := millrace.ProjectionID{Name: "queued"}
	const rounds = 6
	for round := range rounds {
		kept := b.append("kept", 10).Positions[9]
		if err := rt.WaitFor(b.ctx, queued, kept); err != nil {
			t.Fatal(err)
		}
		until := make(chan struct{})
		release := sync.OnceFunc(func() { close(until) })
		t.Cleanup(release)
		hold <- until
		if _, err := b.store.Append(b.ctx, "hold", event.Any, event.Event{Type: "hold"}); err != nil {
			t.Fatal(err)
		}
		<-entered // it holds the only slot
		b.exec("checkpoint")
		last := b.append("lost", 5).Positions[4]
		b.eventually("the events are settled and wait for the slot", func() bool {
			status, err := rt.Status(b.ctx)
			return err == nil && status.Tenants[0].Mark == last
		})
		if err := server.CrashBackend(b.ctx); err != nil {
			t.Fatal(err)
		}
		b.store.Pool().Reset()
		again := b.append("new", 20).Positions
		release()
		if err := rt.WaitFor(b.ctx, queued, again[19]); err != nil {
			t.Fatal(err)
		}
		if err := b.survived("queued", "counted"); err != nil {
			t.Errorf("%v (positions from %d on after %d)", err, again[0], last)
		}
		if p := b.status(rt, "queued"); p.Parked != 0 || p.State != millrace.StateLive {
			t.Errorf("%+v", p)
		}
		if again[0] <= last {
			t.Logf("round %d: events up to %d were lost, and positions handed out again from %d on", round+1, last, again[0])
			return
		}
	}
	t.Fatalf("no position was handed out again in %d crashes: the test shows nothing", rounds)
}

// TestFailoverWithLossStopsNothing kills a primary and promotes a standby that did not receive the last commits. The store
// knows both servers by one DSN.
func TestFailoverWithLossStopsNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	ctx := t.Context()
	standby, err := server.Standby(ctx, pgtest.StandbyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop(context.Background()) })
	b := setupAt(t, pgtest.HostsDSN("postgres", "", server.Address(), standby.Address()), pgstore.Options{})
	var list []millrace.Projection
	for i := range 4 {
		name := fmt.Sprint("p", i)
		list = append(list, millrace.Projection{Name: name, Handler: pgstore.Batch(record(name))})
	}
	rt := b.runtime(millrace.Config{}, list...)
	b.start(rt)
	waitFor := func(position int64) {
		t.Helper()
		for _, p := range list {
			if err := rt.WaitFor(b.ctx, millrace.ProjectionID{Name: p.Name}, position); err != nil {
				t.Fatal(err)
			}
		}
	}
	waitFor(b.append("kept", 50).Positions[49])
	if err := server.CatchUp(b.ctx, standby); err != nil {
		t.Fatal(err)
	}
	if err := standby.Detach(b.ctx); err != nil {
		t.Fatal(err)
	}
	waitFor(b.append("lost", 200).Positions[199])
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(b.ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var again []int64
	b.eventually("events are appended", func() bool {
		result, err := b.store.Append(b.ctx, "new", event.Any, make200()...)
		again = result.Positions
		return err == nil
	})
	waitFor(again[len(again)-1])
	t.Logf("%v after the promotion all is applied; positions from %d on", time.Since(began), again[0])
	for _, p := range list {
		if err := b.survived(p.Name, "counted"); err != nil {
			t.Error(err)
		}
	}
}

func make200() (events []event.Event) {
	for range 200 {
		events = append(events, event.Event{Type: "counted"})
	}
	return events
}
