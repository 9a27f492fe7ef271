package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// TestQueuedWorkDoesNotOutliveTheServerThatItWasReadFrom crashes a server that loses asynchronous commits, while the events
// of one projection wait for a slot. Then the positions are handed out again.
func TestQueuedWorkDoesNotOutliveTheServerThatItWasReadFrom(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{Settings: pgtest.AsyncCommits(map[string]string{"full_page_writes": "off"})})
	b := setupAt(t, server.DSN("postgres"), pgstore.Options{})
	// A call holds the slot until the channel that it takes is closed. A call after the crash takes none.
	hold, entered := make(chan chan struct{}, 1), make(chan struct{})
	holds := func(ctx context.Context, _ kit.Tx, _ []event.Envelope) error {
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
	rt := b.Runtime(millrace.Config{MaxBatches: 1}, millrace.Projection{Name: "holds", Handler: b.Store.Batch(holds), Types: []string{"hold"}},
		millrace.Projection{Name: "queued", Handler: b.Store.Batch(kit.Record("queued")), Types: []string{"counted"}})
	b.Start(rt)
	queued := millrace.ProjectionID{Name: "queued"}
	const rounds = 6
	for round := range rounds {
		kept := b.Append("kept", 10).Positions[9]
		b.Must(rt.WaitFor(b.Ctx, queued, kept))
		until := make(chan struct{})
		release := sync.OnceFunc(func() { close(until) })
		t.Cleanup(release)
		hold <- until
		if _, err := b.store.Append(b.Ctx, "hold", event.Any, event.Event{Type: "hold"}); err != nil {
			t.Fatal(err)
		}
		<-entered // it holds the only slot
		b.exec("checkpoint")
		last := b.Append("lost", 5).Positions[4]
		b.Eventually("the events are settled and wait for the slot", func() bool {
			status, err := rt.Status(b.Ctx)
			return err == nil && status.Tenants[0].Mark == last
		})
		b.Must(server.CrashBackend(b.Ctx))
		b.store.Pool().Reset()
		again := b.Append("new", 20).Positions
		release()
		b.Must(rt.WaitFor(b.Ctx, queued, again[19]))
		if err := b.survived("queued", "counted"); err != nil {
			t.Errorf("%v (positions from %d on after %d)", err, again[0], last)
		}
		if p := b.Status(rt, "queued"); p.Parked != 0 || p.State != millrace.StateLive {
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
	standby, err := server.Standby(t.Context(), pgtest.StandbyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop(context.Background()) })
	b := setupAt(t, pgtest.HostsDSN("postgres", "", server.Address(), standby.Address()), pgstore.Options{})
	var list []millrace.Projection
	for i := range 4 {
		name := fmt.Sprint("p", i)
		list = append(list, millrace.Projection{Name: name, Handler: b.Store.Batch(kit.Record(name))})
	}
	rt := b.Running(millrace.Config{}, list...)
	waitFor := func(position int64) {
		t.Helper()
		for _, p := range list {
			b.Reaches(rt, p.Name, position)
		}
	}
	waitFor(b.Append("kept", 50).Positions[49])
	b.Must(server.CatchUp(b.Ctx, standby))
	b.Must(standby.Detach(b.Ctx))
	waitFor(b.Append("lost", 200).Positions[199])
	b.Must(server.Kill())
	b.Must(standby.Promote(b.Ctx))
	began := time.Now()
	var again []int64
	b.Eventually("events are appended", func() bool {
		result, err := b.store.Append(b.Ctx, "new", event.Any, make200()...)
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

// survived returns what is wrong with what a projection of one event type applied, compared with the events that the server has now.
func (b *bundle) survived(name, eventType string) error {
	var others []int64
	events, err := b.Store.Events(b.Ctx)
	for _, e := range events {
		if e.Type != eventType {
			others = append(others, e.Position)
		}
	}
	return errors.Join(err, b.Check(name, others...))
}
