package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// recorded are the events of one callback.
type recorded[E any] struct {
	mu     sync.Mutex
	events []E
}

func (r *recorded[E]) add(e E) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorded[E]) all() []E {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

func TestObserverSeesWhatHoldsTheMark(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	var holds recorded[observe.Hold]
	rt := b.Running(millrace.Config{Observer: observe.Observer{MarkHeld: holds.add}}, b.Recorders("p")...)
	b.Reaches(rt, "p", b.Append("a", 1).Positions[0])
	began := time.Now()
	open, gap := b.openAppend("open")
	last := b.Append("a", 1).Positions[0]
	b.Eventually("the mark is held", func() bool { return len(holds.all()) == 1 })
	b.Eventually("stats show it", func() bool { s := rt.Stats(); return s.HeldTenants == 1 && s.LongestHeld > 0 })
	b.Must(open.Rollback(b.Ctx))
	b.Applied(rt, last, "p")
	b.Eventually("the wait is over", func() bool { return len(holds.all()) == 2 && rt.Stats().HeldTenants == 0 })
	all := holds.all()
	want := []string{fmt.Sprint("backend ", open.Conn().PgConn().PID())}
	for i, h := range all {
		if h.Tenant != projection.DefaultTenant || h.Ended != (i == 1) || h.Below != last || h.Since.Before(began) ||
			!slices.Equal(h.Holders, want) {
			t.Errorf("%d: %+v, want one below %d by %v", i, h, last, want)
		}
	}
	if all[0].Mark != gap-1 {
		t.Errorf("the mark was %d below the gap at %d", all[0].Mark, gap)
	}
}

func TestObserverSeesOutagesOfTheServer(t *testing.T) {
	b, server := private(t, pgtest.Options{})
	var databases recorded[observe.Database]
	var sessions recorded[observe.Session]
	// A node that is idle meets the outage only with its session, so a batch is in progress when the server is killed.
	entered, killed := make(chan struct{}, 1), make(chan struct{})
	p := millrace.Projection{Name: "p",
		Handler: b.Store.Batch(func(ctx context.Context, tx kit.Tx, events []event.Envelope) error {
			if events[0].Position > 5 {
				select {
				case entered <- struct{}{}:
				default: // it was entered before
				}
				<-killed
			}
			return tx.Record(ctx, "p", events...)
		})}
	rt := b.Running(millrace.Config{Observer: observe.Observer{DatabaseChanged: databases.add,
		SessionChanged: sessions.add}}, p)
	stop := b.AppendThrough(1)
	b.InTime("a batch is in progress", func() { <-entered })
	err := server.Kill()
	close(killed)
	b.Must(err)
	b.Eventually("the database is unusable", func() bool { return len(databases.all()) > 0 })
	b.Must(server.StartAgain(b.Ctx))
	b.Eventually("the database is usable again",
		func() bool { all := databases.all(); return len(all) > 1 && all[len(all)-1].Usable })
	b.Eventually("the session is connected again", func() bool {
		return slices.ContainsFunc(sessions.all(), func(s observe.Session) bool { return s.Again && s.Connected })
	})
	stop()
	b.MustCatchUp(rt, "p")
	for i, d := range databases.all() {
		if usable := i%2 == 1; d.Usable != usable || (d.Err == nil) != usable || (d.Outage > 0) != usable {
			t.Errorf("change %d of the database: %+v", i, d)
		}
	}
	all := sessions.all()
	for i, s := range all {
		if connected := i%2 == 0; s.Connected != connected || (s.Err == nil) != connected || s.Again != (i > 0) ||
			(s.Lasted > 0) != (i > 0) {
			t.Errorf("change %d of the session: %+v", i, s)
		}
	}
	if len(all) < 3 {
		t.Errorf("changes of the session: %+v", all)
	}
}

func TestObserverSeesWaitsForSlots(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	var waits recorded[observe.Wait]
	last := b.Append("a", 20).Positions[19]
	names := []string{"p", "q", "r"}
	rt := b.Running(millrace.Config{MaxBatches: 1, Observer: observe.Observer{SlotWaited: waits.add}},
		b.Recorders(names...)...)
	for i := range 5 {
		last = b.Append(fmt.Sprint(i), 20).Positions[19]
	}
	b.Applied(rt, last, names...)
	b.Eventually("one waited for another's batch", func() bool {
		return slices.ContainsFunc(waits.all(), func(w observe.Wait) bool {
			return w.Slot == observe.SlotBatch && w.Tenant == projection.DefaultTenant &&
				slices.Contains(names, w.Name) && w.Duration > 0 && w.Err == nil
		})
	})
}
