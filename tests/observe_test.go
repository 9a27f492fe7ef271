package tests_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/observe"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestObserverSeesBatchesReadsAndLeases(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		before := b.Append("a", 30).Positions[29]
		var o observed
		rt := b.Runtime(millrace.Config{Observer: o.observer(), PollInterval: time.Hour}, b.Recorders("p")...)
		stop := b.Start(rt)
		b.Reaches(rt, "p", before)
		appended := time.Now().Add(-time.Minute) // the clocks may differ
		last := b.Append("a", 3).Positions[2]
		b.Reaches(rt, "p", last)
		stop()

		events, applied := 0, 0
		id := millrace.ProjectionID{Tenant: projection.DefaultTenant, Name: "p"}
		batches := seen(&o, func(e observe.Batch) bool { return e.Fault == "" })
		for _, e := range batches {
			events, applied = events+e.Events, applied+e.Applied
			if e.Projection != id || e.Err != nil || e.Delivery || e.Parked != 0 || e.Bytes < 100*e.Events ||
				e.Duration <= 0 || e.Queued < 0 {
				t.Errorf("a batch that succeeded: %+v", e)
			}
		}
		if events != 33 || applied != 33 {
			t.Errorf("batches of %d events, %d of them applied: %+v", events, applied, batches)
		}
		newest := batches[len(batches)-1]
		if !newest.Live || newest.Position != last || newest.Oldest.Before(appended) ||
			newest.Oldest.After(time.Now().Add(time.Minute)) {
			t.Errorf("the batch of the newest events, appended after %v: %+v", appended, newest)
		}
		woken := seen(&o, func(e observe.Read) bool { return e.Woken && e.Events > 0 })
		if len(woken) == 0 || woken[len(woken)-1].Mark != last || woken[0].Bytes == 0 ||
			woken[0].Duration <= 0 != woken[0].Own || woken[0].Latency < 0 ||
			woken[0].Tenant != projection.DefaultTenant {
			t.Errorf("reads after the append: %+v", woken)
		}
		var changes []observe.LeaseChange
		for _, e := range seen(&o,
			func(e observe.Lease) bool { return e.Projection == id && !e.Takeover && e.Epoch == 1 }) {
			changes = append(changes, e.Change)
		}
		if !slices.Equal(changes, []observe.LeaseChange{observe.LeaseClaimed, observe.LeaseReleased}) {
			t.Errorf("leases: %v", changes)
		}
		if s := seen(&o,
			func(e observe.Session) bool {
				return e.Connected && !e.Again && e.Err == nil &&
					e.Lasted == 0
			}); len(s) != 1 {
			t.Errorf("sessions: %+v", s)
		}
	})
}

func TestObserverSeesFailuresDecisionsAndReplays(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		var o observed
		bad := s.At["a"][2]
		s.PoisonAt(bad)
		rt := s.Running(millrace.Config{Observer: o.observer()}, s.P)
		s.CatchUp(rt)
		failed := seen(&o, func(e observe.Failure) bool {
			return e.Position == bad && e.Stream == "a" && e.Type == "counted" && e.Fault == observe.FaultHandler &&
				errors.Is(e.Err, kit.ErrOnPurpose)
		})
		if len(failed) != 2 || failed[0].Attempt != 1 || failed[1].Attempt != 2 {
			t.Errorf("counted failures: %+v", failed)
		}
		if batches := seen(&o, func(e observe.Batch) bool {
			return e.Fault == observe.FaultHandler && e.Err != nil && e.Applied == 0 && e.Events > 0 && e.Position < bad
		}); len(batches) < 2 {
			t.Errorf("batches that failed: %+v", batches)
		}
		parked := seen(&o, func(e observe.Decision) bool { return e.Action == projection.ActionParkStream })
		if first := parked[0]; first.Events != 1 || first.Position != bad || first.Stream != "a" ||
			first.Attempts != 2 || first.Err == nil {
			t.Errorf("the decision about the failed event: %+v", first)
		}
		following := 0
		for _, e := range parked[1:] {
			following += e.Events
			if e.Err != nil || e.Position <= bad {
				t.Errorf("events after one of their stream: %+v", e)
			}
		}
		if following != 7 {
			t.Errorf("%d later events of the stream were parked: %+v", following, parked)
		}

		replayed := func(n int, match func(e observe.Replay) bool) {
			t.Helper()
			if found := seen(&o, match); len(found) != n {
				t.Errorf("%d replays, want %d: %+v", len(found), n, seen(&o, func(observe.Replay) bool { return true }))
			}
		}
		_, err := s.DeadLetters.Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 100)
		b.Must(err)
		replayed(1, func(e observe.Replay) bool {
			return e.Position == bad && e.Action == projection.ActionPark && errors.Is(e.Err, kit.ErrOnPurpose)
		})
		s.Mended.Store(true)
		_, err = s.DeadLetters.Replay(b.Ctx, projection.DeadLetterFilter{All: true}, 100)
		b.Must(err)
		replayed(8, func(e observe.Replay) bool { return e.Err == nil && e.Stream == "a" })
	})
}

func TestObserverSeesSkipsStopsAndRejections(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		last := b.Append("a", 3).Positions[2]
		fails := func(request func(error) error) kit.EventFunc {
			return kit.OneByOne(kit.FailsAt("p", kit.Only(2),
				func(context.Context, kit.Tx, int, int64) error { return request(kit.ErrOnPurpose) }))
		}
		var o observed
		rt := b.Running(millrace.Config{Observer: o.observer()},
			millrace.Projection{Name: "skips", Handler: b.Store.Each(fails(projection.Skip))},
			millrace.Projection{Name: "stops", Handler: b.Store.Each(fails(projection.Stop))},
			millrace.Projection{Name: "rejects", OnFailure: projection.ActionPark,
				Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
					for _, e := range d.Events() {
						done := func() error { return d.Ack(ctx, e.Position) }
						if e.Position == 2 {
							done = func() error { return d.Reject(ctx, e.Position, kit.ErrOnPurpose) }
						}
						if err := done(); err != nil {
							return err
						}
					}
					return nil
				})})
		b.Reaches(rt, "skips", last)
		b.Reaches(rt, "rejects", last)
		b.Is(rt, "stops", admin.StateFailed)
		for name, want := range map[string]observe.Decision{
			"skips":   {Action: projection.ActionSkip, Events: 1, Attempts: 1},
			"stops":   {Action: projection.ActionStop, Attempts: 1},
			"rejects": {Action: projection.ActionPark, Events: 1, Attempts: 1},
		} {
			b.Eventually(name+" is decided", func() bool {
				return len(seen(&o, func(e observe.Decision) bool {
					return e.Projection.Name == name && e.Action == want.Action && e.Events == want.Events &&
						e.Attempts == want.Attempts &&
						e.Position == 2 && strings.Contains(e.Err.Error(), "on purpose")
				})) == 1
			})
		}
		delivered := 0
		for _, e := range seen(&o, func(e observe.Batch) bool { return e.Projection.Name == "rejects" && e.Delivery }) {
			delivered += e.Applied + e.Parked
		}
		if delivered != 3 {
			t.Errorf("%d of 3 events were acknowledged or rejected", delivered)
		}
	})
}

func TestObserverSeesTheBreaker(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		g := newGuarded(b, 20*time.Millisecond)
		var o observed
		rt := g.Running(millrace.Config{Observer: o.observer()}, g.projection)
		g.opens(rt, 3)
		g.down.Store(false)
		g.closes(rt)
		all := seen(&o, func(e observe.Breaker) bool { return e.Projection.Name == "p" })
		for i, e := range all {
			if i > 0 && e.Before != all[i-1].State || (e.Reason != nil) != (e.State == projection.BreakerOpen) {
				t.Errorf("change %d: %+v", i, e)
			}
		}
		first, last := all[0], all[len(all)-1]
		if first.Before != projection.BreakerClosed || first.State != projection.BreakerOpen ||
			!errors.Is(first.Reason, errDown) || last.State != projection.BreakerClosed {
			t.Errorf("the breaker changed: %+v", all)
		}
		if n := len(seen(&o, func(e observe.Batch) bool { return e.Fault == observe.FaultOutage })); n < 3 {
			t.Errorf("%d batches met the outage", n)
		}
	})
}

func TestObserverThatPanicsDisturbsNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewParking(b)
		s.PoisonAt(s.At["a"][2], s.At["b"][2])
		var calls atomic.Int64
		log, logs := kit.Logs()
		rt := s.Runtime(millrace.Config{Logger: log, Observer: observe.Observer{
			BatchEnded:        panics[observe.Batch](&calls),
			EventFailed:       panics[observe.Failure](&calls),
			Decided:           panics[observe.Decision](&calls),
			LeaseChanged:      panics[observe.Lease](&calls),
			EventsRead:        panics[observe.Read](&calls),
			SlotWaited:        panics[observe.Wait](&calls),
			ConnectionsWaited: panics[observe.ConnectionWaits](&calls),
			SessionChanged:    panics[observe.Session](&calls),
		}}, s.P)
		stop := s.Start(rt)
		s.CatchUp(rt)
		stop()
		var want []int64
		want = append(want, s.At["a"][2:]...)
		want = append(want, s.At["b"][2:]...)
		slices.Sort(want)
		s.MustHaveParked(want...)
		said := make(map[string]int)
		for _, line := range logs.FilterMessageSnippet("callback of the observer panicked").All() {
			said[line.ContextMap()["callback"].(string)]++
		}
		for _, name := range []string{"BatchEnded", "EventFailed", "Decided", "LeaseChanged", "EventsRead",
			"SessionChanged"} {
			if said[name] != 1 {
				t.Errorf("%s: its panic was logged %d times", name, said[name])
			}
		}
		if calls.Load() <= int64(len(said)) {
			t.Errorf("%d calls: a callback that panicked was not called again", calls.Load())
		}
		if restarts := logs.FilterMessageSnippet("actor crashed").Len(); restarts != 0 {
			t.Errorf("%d actors crashed", restarts)
		}
	})
}

// A callback that blocks delays the projection that reports. The others, the node and its health go on.
func TestObserverThatBlocksDelaysOneProjection(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		release := make(chan struct{})
		ends := sync.OnceFunc(func() { close(release) })
		defer ends()
		config := kit.Quick
		config.Observer.BatchEnded = func(e observe.Batch) {
			if e.Projection.Name == "p" {
				<-release
			}
		}
		rt := b.Runtime(config, b.Recorders("p", "q")...)
		stop := b.Start(rt)
		b.Append("s", 1)
		b.Reaches(rt, "q", 1)
		b.Reaches(rt, "q", b.Append("s", 1).Positions[0])
		// its first search ends after the projections have been started
		b.Eventually("the node is live and ready", func() bool {
			h := rt.Health(b.Ctx)
			return h.Live && h.Ready
		})
		ends()
		b.Reaches(rt, "p", 2)
		stop()
	})
}

func panics[E any](calls *atomic.Int64) func(E) {
	return func(E) {
		calls.Add(1)
		panic("on purpose")
	}
}

func TestObserverSeesATakeover(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		dead := b.Hold(3)
		var o observed
		config := kit.Quick
		config.Observer = o.observer()
		rt := b.Another(config, b.Recorders("p")...)
		b.Start(rt)
		b.Eventually("it has seen the other node alive", func() bool {
			return len(seen(&o, func(e observe.Session) bool { return e.Connected })) > 0
		})
		b.Must(dead.Session.Close(b.Ctx)) // without an end in order
		b.Reaches(rt, "p", 3)
		taken := seen(&o, func(e observe.Lease) bool { return e.Change == observe.LeaseClaimed })
		if len(taken) != 1 || !taken[0].Takeover || taken[0].Epoch <= dead.Lease.Epoch {
			t.Errorf("after epoch %d: %+v", dead.Lease.Epoch, taken)
		}
	})
}
