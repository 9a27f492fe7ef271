package tests_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// queueNothing queues nothing.
func queueNothing(context.Context, kit.Queue, []event.Envelope) error { return nil }

// recordQueued is kit.RecordQueued for one event.
func recordQueued(name string) kit.QueueEventFunc {
	return func(_ context.Context, q kit.Queue, e event.Envelope) error {
		q.Record(name, e)
		return nil
	}
}

// Nodes end and leases move while events come, and each event is applied once and in order, also with asynchronous
// commits.
func TestQueuedProjectionsApplyEachEventOnceWhileNodesComeAndGo(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		projections := []millrace.Projection{
			{Name: "batch", Handler: b.Store.Queued(kit.RecordQueued("batch"))},
			{Name: "each", Handler: b.Store.QueuedEach(recordQueued("each"))},
			{Name: "typed", Handler: b.Store.QueuedCounted(recordQueued("typed"))},
			{Name: "async", AsyncCommit: true, Handler: b.Store.Queued(kit.RecordQueued("async"))},
			{Name: "small", MaxEvents: 1, Handler: b.Store.Queued(kit.RecordQueued("small"))},
		}
		names := []string{"batch", "each", "typed", "async", "small"}
		var rt *millrace.Runtime
		end := func() {}
		for range 4 {
			stop := b.Flow()
			rt = b.Another(kit.Quick, projections...)
			ends := []func(){b.Start(rt), b.Start(b.Another(kit.Quick, projections...))}
			end()
			end = func() { ends[0](); ends[1]() }
			for _, name := range names[:4] {
				b.Reaches(rt, name, b.Head())
			}
			// Small batches fall behind while events come, since each of them waits for batches of the others. With
			// more rounds of that, the test would take many times as long.
			b.Reaches(rt, "small", stop())
		}
		b.Applied(rt, b.Head(), names...)
	})
}

func TestQueuedPartitionsApplyEachEventOnceAndEachStreamInOrder(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.NewSplit(b, "p", 3)
		applyWhileNodesComeAndGo(s, s.Queued(oneOfTen))
	})
}

// A queued handler may be called after its lease is lost, and nothing of it is written.
func TestQueuedBatchOfALostLeaseWritesNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(3)
		handler := b.Store.Queued(kit.RecordQueued("p"))
		var next *kit.Holder
		during := b.Store.Queued(func(ctx context.Context, q kit.Queue, events []event.Envelope) error {
			next = h.Next()
			return kit.RecordQueued("p")(ctx, q, events)
		})
		for _, handler := range []millrace.Handler{during, handler} {
			err := h.ApplyWithin(b.Ctx, handler, engine.ApplyOptions{})
			h.MustBe(err, faults.LeaseLost)
			if !errors.Is(err, projection.ErrLeaseLost) {
				t.Errorf("%v is not ErrLeaseLost", err)
			}
			h.Untouched()
		}
		b.Must(next.ApplyWithin(b.Ctx, handler, engine.ApplyOptions{}))
		next.HasApplied(3)
		// The lease still has its values from before the batch, as after a commit whose answer was lost.
		next.MustBe(next.ApplyWithin(b.Ctx, handler, engine.ApplyOptions{}), faults.LeaseLost)
		next.HasApplied(3)
	})
}

// A queued handler has no transaction, so that others write while it runs, in a file as well.
func TestOthersWriteWhileAQueuedHandlerRuns(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(2)
		b.Must(h.ApplyWithin(b.Ctx,
			b.Store.Queued(func(ctx context.Context, q kit.Queue, events []event.Envelope) error {
				b.Append("s", 1)
				b.Must(b.Again().InTx(b.Ctx, func(ctx context.Context,
					tx kit.Tx) error {
					return tx.Record(ctx, "other", events...)
				}))
				return kit.RecordQueued("p")(ctx, q, events)
			}), engine.ApplyOptions{}))
		h.HasApplied(2)
		if other := b.Positions("other"); len(other) != 2 {
			t.Errorf("another transaction wrote %v", other)
		}
	})
}

func TestQueuedHandlerThatDoesNotEndInTime(t *testing.T) {
	kit.OnEachStore(t, func(t *testing.T, kind *kit.Kind) {
		b := kind.With(t, 1) // a handler that hangs holds no connection
		h := b.Hold(1)
		release, ended := make(chan struct{}), make(chan struct{})
		soon := engine.ApplyOptions{Timeout: 100 * time.Millisecond}
		late := h.MustBe(h.ApplyWithin(b.Ctx,
			b.Store.Queued(func(ctx context.Context, q kit.Queue, events []event.Envelope) error {
				<-ctx.Done()
				return errors.Join(kit.RecordQueued("p")(ctx, q, events), context.Cause(ctx))
			}), soon), faults.Handler)
		hangs := h.MustBe(h.ApplyWithin(b.Ctx,
			b.Store.Queued(func(ctx context.Context, q kit.Queue, events []event.Envelope) error {
				defer close(ended)
				<-release
				return kit.RecordQueued("p")(ctx, q, events)
			}), soon), faults.Handler)
		if !errors.Is(late, projection.ErrTimeout) || !errors.Is(hangs, projection.ErrAbandoned) ||
			h.Port.Abandoned() != 1 {
			t.Errorf("%v; %v; %d abandoned", late, hangs, h.Port.Abandoned())
		}
		h.Untouched()
		ctx, cancel := context.WithCancel(b.Ctx)
		h.MustBe(h.ApplyWithin(ctx, b.Store.Queued(func(ctx context.Context, _ kit.Queue, _ []event.Envelope) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}), engine.ApplyOptions{}), faults.Infrastructure)
		b.Must(h.ApplyWithin(b.Ctx,
			b.Store.Queued(func(ctx context.Context, q kit.Queue, events []event.Envelope) error {
				<-ctx.Done() // it finishes late, and has done its work
				return kit.RecordQueued("p")(ctx, q, events)
			}), soon))
		close(release)
		<-ended
		h.HasApplied(1)
	})
}

// If a statement names its event, the batch fails once. If not, it is halved. Only failures of the event alone count.
func TestPoisonOfQueuedHandlersIsParkedAfterItsAttempts(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		poison := b.Append("a", 64).Positions[40]
		failed := make(map[string]*atomic.Int64)
		var projections []millrace.Projection
		for _, name := range []string{"named", "halved", "each", "argument", "returned"} {
			calls := new(atomic.Int64)
			failed[name] = calls
			p := millrace.Projection{Name: name, Retry: kit.Soon(1), OnFailure: projection.ActionPark}
			is := func(e event.Envelope) bool {
				if e.Position == poison {
					calls.Add(1)
				}
				return e.Position == poison
			}
			p.Handler = b.Store.Queued(kit.FailsQueued(name, name == "named", is))
			switch name {
			case "each":
				p.Handler = b.Store.QueuedEach(func(_ context.Context, q kit.Queue, e event.Envelope) error {
					q.Record(name, e)
					if is(e) {
						q.Expect(5).Exec("delete from strict where a = 7")
					}
					return nil
				})
			case "argument":
				p.Handler = b.Store.QueuedEach(func(_ context.Context, q kit.Queue, e event.Envelope) error {
					q.Record(name, e)
					if is(e) {
						q.Exec("insert into strict (a) values ($1)", make(chan int))
					}
					return nil
				})
			case "returned":
				p.Handler = b.Store.QueuedEach(func(_ context.Context, q kit.Queue, e event.Envelope) error {
					q.Record(name, e)
					if is(e) {
						return kit.ErrOnPurpose
					}
					return nil
				})
			}
			projections = append(projections, p)
		}
		b.Idle(projections...)
		for name, calls := range failed {
			b.Verify(name, poison)
			b.MustPark(name, poison, 2)
			if n := calls.Load(); name != "halved" && n != 3 || name == "halved" && (n < 6 || n > 14) {
				t.Errorf("%s: the handler was called %d times with the event", name, n)
			}
		}
	})
}

func TestStreamsOfQueuedHandlersAreParkedAndReplayedInOrder(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		s := kit.QueuedParking(b)
		s.PoisonAt(s.At["a"][3], s.At["c"][0])
		rt := s.Running(millrace.Config{}, s.P)
		s.CatchUp(rt)
		s.More("a", "b", "c")
		s.CatchUp(rt)
		s.MustHaveParked(append(slices.Clone(s.At["a"][3:]), s.At["c"]...)...)
		s.MustReplay(projection.DeadLetterFilter{All: true}, 100, 0, 2)
		s.MustHaveParked(append(slices.Clone(s.At["a"][3:]), s.At["c"]...)...)
		s.Mended.Store(true)
		s.MustReplay(projection.DeadLetterFilter{Stream: "a"}, 2, 2, 0)
		s.MustHaveParked(append(slices.Clone(s.At["a"][5:]), s.At["c"]...)...)
		s.MustReplay(projection.DeadLetterFilter{All: true}, 100, len(s.At["a"])-5+len(s.At["c"]), 0)
		s.MustHaveParked()
		s.More("a", "b", "c")
		s.CatchUp(rt)
		s.MustHaveParked()
	})
}

func TestQueuedProjectionIsRebuilt(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		rt := b.Running(kit.Quick, b.QueuedRebuildable("p"))
		stop := b.Flow()
		for range 3 {
			b.Reaches(rt, "p", b.Head())
			b.Must(rt.Rebuild(b.Ctx, p, admin.ResetOptions{}))
		}
		b.Applied(rt, stop(), "p")
	})
}

func TestQueuedVersionIsSwappedIn(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		newModel(b, 2)
		b.Append("a", 30)
		b.Idle(modelVersion(b, 1))
		versions := modelVersions(b, 1, 2)
		for i := range versions {
			versions[i].Handler = b.Store.QueuedEach(func(_ context.Context, q kit.Queue, e event.Envelope) error {
				q.Expect(1).Exec("insert into "+tableOf(i+1)+" (position) values ($1)", e.Position)
				return nil
			})
		}
		rt := b.Running(kit.Quick, versions...)
		b.Reaches(rt, "model@2", b.Head())
		goesOn(b, rt)
		swap(b, rt, 2)
		goesOn(b, rt)
		served(b, 2)
	})
}

// A Route of handlers that queue queues. In a mixed one, the statements of those that queue are executed in order with
// the others.
func TestRouteOfQueuedAndOtherHandlers(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		for i := range 20 {
			b.MustAppend(b.Store, fmt.Sprint("s", i%3), event.Any, event.Event{Type: "counted"},
				event.Event{Type: "noted"}, event.Event{Type: "noted"})
		}
		poison := b.Head() - 1
		rt := b.Idle(millrace.Projection{Name: "mixed", OnFailure: projection.ActionPark, Retry: kit.Soon(1),
			Handler: b.Store.Mixed(
				func(ctx context.Context, tx kit.Tx, e event.Envelope) error { return tx.Record(ctx, "mixed", e) },
				func(_ context.Context, q kit.Queue, e event.Envelope) error {
					own := q.At(e)
					own.Record("mixed", e)
					if e.Position == poison {
						kit.QueueFails(own)
					}
					return nil
				})})
		b.Verify("mixed", poison)
		b.MustPark("mixed", poison, 2)
		if s := b.Status(rt, "mixed"); s.Parked != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Middleware runs around each call of a function that queues, once.
func TestMiddlewareRunsAroundQueuedHandlers(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		b.Append("s", 2)
		j := newJournal()
		handled := func(ctx context.Context, events ...event.Envelope) {
			j.note(ctx, "%s> %v", ctx.Value(seenBy{}), placesOf(events))
		}
		skips := func(next millrace.HandleFunc) millrace.HandleFunc {
			return func(ctx context.Context, events []event.Envelope) error {
				if events[0].Position == 1 {
					return projection.Skip(kit.ErrOnPurpose)
				}
				return next(ctx, events)
			}
		}
		queues := func(name string) kit.QueueEventFunc {
			return func(ctx context.Context, q kit.Queue, e event.Envelope) error {
				handled(ctx, e)
				return recordQueued(name)(ctx, q, e)
			}
		}
		rt := b.Runtime(millrace.Config{Middleware: []millrace.Middleware{j.named("m ")}},
			millrace.Projection{Name: "each", Handler: b.Store.QueuedEach(queues("each"))},
			millrace.Projection{Name: "typed", Handler: b.Store.QueuedCounted(queues("typed"))},
			millrace.Projection{
				Name: "skipped", Middleware: []millrace.Middleware{skips},
				Handler: b.Store.QueuedEach(recordQueued("skipped")),
			},
			millrace.Projection{Name: "batch",
				Handler: b.Store.Queued(func(ctx context.Context, q kit.Queue, events []event.Envelope) error {
					handled(ctx, events...)
					return kit.RecordQueued("batch")(ctx, q, events)
				})})
		b.RunUntilIdle(rt)
		one := []string{"m  [1]", "m > [1]", "m  [2]", "m > [2]"}
		for name, want := range map[string][]string{"each": one, "typed": one, "batch": {"m  [1 2]", "m > [1 2]"}} {
			b.Verify(name)
			if got := j.of(name); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		b.Verify("skipped", 1)
		if s := b.Status(rt, "skipped"); s.Skipped != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// What a queued function has read may have changed when its statements are executed.
func TestQueuedHandlerThatReadsIsRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(1)
		reads := map[string]func(ctx context.Context) error{
			"a stream": func(ctx context.Context) error { return firstError(b.Store.ReadStream(ctx, "s", 1)) },
			"all": func(ctx context.Context) error {
				return firstError(b.Store.ReadAll(ctx, event.ReadOptions{}))
			},
			"what a stream is": func(ctx context.Context) error {
				_, err := b.Store.Stream(ctx, "s")
				return err
			},
		}
		for name, read := range reads {
			t.Run(name, func(t *testing.T) {
				err := h.ApplyWithin(b.Ctx,
					b.Store.Queued(func(ctx context.Context, _ kit.Queue, _ []event.Envelope) error {
						return read(ctx)
					}), engine.ApplyOptions{})
				h.MustBe(err, faults.Configuration)
				if !errors.Is(err, projection.ErrQueuedRead) {
					t.Error(err)
				}
				h.Untouched()
				b.Must(read(b.Ctx))
			})
		}
		besideOne := kit.Route(kit.Typed[kit.Counted]{Store: b.Store}.OnQueued(
			func(ctx context.Context, _ kit.Queue, _ event.Of[kit.Counted]) error { return reads["all"](ctx) }),
			kit.Typed[kit.Noted]{Store: b.Store}.On(
				func(context.Context, kit.Tx, event.Of[kit.Noted]) error { return nil }))
		err := h.ApplyWithin(b.Ctx, besideOne, engine.ApplyOptions{})
		h.MustBe(err, faults.Configuration)
		if !errors.Is(err, projection.ErrQueuedRead) {
			t.Errorf("in a route with a handler that has a transaction: %v", err)
		}
		h.Untouched()
		b.Must(h.ApplyWithin(b.Ctx, b.Store.Queued(func(ctx context.Context, _ kit.Queue, _ []event.Envelope) error {
			return reads["all"](projection.OutsideTx(ctx))
		}), engine.ApplyOptions{}))
	})
}

// firstError returns the first error with which a read ends.
func firstError(events iter.Seq2[event.Envelope, error]) error {
	for _, err := range events {
		if err != nil {
			return err
		}
	}
	return nil
}

// What a queued function appends by itself would be repeated with its batch.
func TestQueuedHandlerThatAppendsIsRefused(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		h := b.Hold(1)
		err := h.ApplyWithin(b.Ctx, b.Store.Queued(func(ctx context.Context, _ kit.Queue, _ []event.Envelope) error {
			_, err := b.Store.Append(ctx, "s", event.Any, event.Event{Type: "counted"})
			return err
		}), engine.ApplyOptions{})
		h.MustBe(err, faults.Configuration)
		if !errors.Is(err, projection.ErrWithinTx) ||
			!strings.Contains(err.Error(), "AppendTx") {
			t.Error(err)
		}
		h.Untouched()
		b.Must(h.ApplyWithin(b.Ctx, b.Store.Queued(queueNothing), engine.ApplyOptions{}))
		if at := h.Checkpoint(); at != 1 {
			t.Errorf("the checkpoint is %d after a batch that queued nothing", at)
		}
		b.MustHave(1)
	})
}
