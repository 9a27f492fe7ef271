package tests_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/delivery"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestAcknowledgedPrefixIsKeptAndTheRestComesAgain(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 5)
		first := o.Lease.Checkpoint + 1
		err := o.deliver(func(ctx context.Context, d handler.Delivery) error {
			for _, n := range []int64{first + 1, first + 2} {
				if err := d.Ack(ctx, n); err != nil {
					return err
				}
				if at := o.Checkpoint(); at != n {
					t.Errorf("acknowledged up to %d, the checkpoint is %d", n, at)
				}
			}
			return nil
		}, engine.DeliverOptions{})
		if fault := o.partial(err, first+2); fault != nil {
			t.Error(fault)
		}
		o.refresh()
		err = o.deliver(func(ctx context.Context, d handler.Delivery) error {
			if got := positionsDelivered(d.Events()); !slices.Equal(got, []int64{first + 3, first + 4}) {
				t.Errorf("left are %v", got)
			}
			return d.Ack(ctx, first+4)
		}, engine.DeliverOptions{})
		if err != nil || o.Checkpoint() != first+4 {
			t.Errorf("checkpoint %d: %v", o.Checkpoint(), err)
		}
	})
}

func TestInvalidAcknowledgementsAreRefusedByName(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 5)
		first := o.Lease.Checkpoint + 1
		err := o.deliver(func(ctx context.Context, d handler.Delivery) error {
			if err := d.Ack(ctx, first+1); err != nil {
				return err
			}
			for what, refused := range map[string]error{
				fmt.Sprint(first):     d.Ack(ctx, first),
				fmt.Sprint(first + 1): d.Ack(ctx, first+1),
				fmt.Sprint(first + 9): d.Ack(ctx, first+9),
				"-3":                  d.Ack(ctx, -3),
				fmt.Sprint(first + 3): d.Reject(ctx, first+3, errOnPurpose),
				fmt.Sprint(first + 2): d.Reject(ctx, first+2, nil),
			} {
				if refused == nil || !strings.Contains(refused.Error(), " "+what+" ") {
					t.Errorf("position %s: %v", what, refused)
				}
			}
			return d.Ack(ctx, first+4)
		}, engine.DeliverOptions{})
		if err != nil || o.Checkpoint() != first+4 {
			t.Errorf("checkpoint %d: %v", o.Checkpoint(), err)
		}
	})
}

func TestFailureBelongsToTheFirstEventThatIsNotDone(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 25)
		o.most = 5
		for name, c := range map[string]struct {
			then func(ctx context.Context, d handler.Delivery) error
			says string
		}{
			"error": {fails, "on purpose"},
			"panic": {func(context.Context, handler.Delivery) error { panic(errOnPurpose) }, "on purpose"},
			"end": {
				func(context.Context, handler.Delivery) error { runtime.Goexit(); return nil },
				usercode.ErrGoexit.Error(),
			},
			"named": {func(_ context.Context, d handler.Delivery) error {
				return projection.At(d.Events()[2].Position, errOnPurpose)
			}, "on purpose"},
			"another named": {func(_ context.Context, d handler.Delivery) error {
				return projection.At(d.Events()[4].Position, errOnPurpose)
			}, "first event that is not done"},
			"own time-out": {func(context.Context, handler.Delivery) error {
				return &net.DNSError{Err: "did not answer", IsTimeout: true}
			}, "did not answer"},
			"lease lost": {
				func(context.Context, handler.Delivery) error { return projection.ErrLeaseLost }, "lease lost",
			},
		} {
			o.refresh()
			start := o.Lease.Checkpoint
			fault := o.partial(o.deliver(failsAfter(2, c.then), engine.DeliverOptions{}), start+2)
			if fault == nil || fault.Class != faults.Handler || fault.Position != start+3 ||
				!strings.Contains(fault.Error(), c.says) {
				t.Errorf("%s: %+v", name, fault)
			}
			if name == "panic" && !strings.Contains(fault.Stack, "deliveries_test.go") {
				t.Errorf("no stack: %q", fault.Stack)
			}
			if o.Checkpoint() != start+2 {
				t.Errorf("%s: checkpoint %d", name, o.Checkpoint())
			}
		}
		o.refresh()
		start := o.Lease.Checkpoint
		err := o.deliver(func(context.Context, handler.Delivery) error { return nil }, engine.DeliverOptions{})
		if fault := o.partial(err, start); fault == nil || fault.Class != faults.Handler ||
			!errors.Is(fault, delivery.ErrNothingDone) {
			t.Errorf("a handler that did nothing: %v", fault)
		}
		err = o.deliver(func(ctx context.Context, d handler.Delivery) error {
			return errors.Join(d.Ack(ctx, start+5), errOnPurpose)
		}, engine.DeliverOptions{})
		if err != nil || o.Checkpoint() != start+5 {
			t.Errorf("failed when all was done: checkpoint %d, %v", o.Checkpoint(), err)
		}
	})
}

func TestRejectedEventIsParkedAndTheDeliveryContinues(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 4)
		start := o.Lease.Checkpoint
		o.Lease.FailingPosition, o.Lease.Attempts = start+2, 2
		err := o.deliver(func(ctx context.Context, d handler.Delivery) error {
			for _, step := range []error{d.Ack(ctx, start+1), d.Reject(ctx, start+2, errOnPurpose), d.Ack(ctx, start+3),
				d.Reject(ctx, start+4, projection.Park(errOnPurpose))} {
				if step != nil {
					return step
				}
			}
			return nil
		}, engine.DeliverOptions{})
		if fault := o.partial(err, start+4); fault != nil {
			t.Error(fault)
		}
		letters, err := o.letters().List(o.Ctx, projection.DeadLetterPage{})
		if err != nil || len(letters) != 2 || letters[0].Position != start+2 || letters[0].Attempts != 3 ||
			letters[0].Error != "on purpose" || letters[1].Attempts != 1 {
			t.Errorf("%+v, %v", letters, err)
		}
		o.refresh()
		if o.Lease.Parked != 2 || o.Lease.Checkpoint != start+4 {
			t.Errorf("%+v", o.Lease)
		}
	})
}

func TestRejectionThatConcernsMoreThanItsEventIsLeftToTheProjection(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 3)
		start := o.Lease.Checkpoint
		var recent engine.FailureWindow
		for range 30 {
			recent.Failed()
		}
		events := o.pending()
		for name, c := range map[string]struct {
			policy engine.Policy
			cause  error
			want   projection.Action
		}{
			"another wish": {
				engine.Policy{MaxFailureShare: -1, MaxParked: -1}, projection.Stop(errOnPurpose), projection.ActionStop,
			},
			"streams are kept": {
				engine.Policy{MaxFailureShare: -1, MaxParked: -1, OnFailure: projection.ActionParkStream}, errOnPurpose,
				projection.ActionParkStream,
			},
			"no room": {
				engine.Policy{OnFailure: projection.ActionPark, MaxFailureShare: -1, MaxParked: 0}, errOnPurpose,
				projection.ActionPark,
			},
			"nearly all failed": {
				engine.Policy{OnFailure: projection.ActionPark, MaxFailureShare: 0.5, MaxParked: -1}, errOnPurpose,
				projection.ActionPark,
			},
		} {
			ended := false
			apply := o.deliveries(func(ctx context.Context, d handler.Delivery) error {
				refused := d.Reject(ctx, start+1, c.cause)
				if !errors.Is(refused, projection.ErrDeliveryOver) ||
					!errors.Is(d.Ack(ctx, start+1), projection.ErrDeliveryOver) {
					t.Errorf("%s: %v", name, refused)
				}
				ended = ctx.Err() != nil && d.Remaining() == 0
				return nil
			}, engine.DeliverOptions{Policy: c.policy})
			err := apply(o.Ctx, o.Lease, engine.Batch{Events: events, To: start + 3, FailureWindow: recent})
			fault := o.partial(err, start)
			if fault == nil || fault.Class != faults.Handler || fault.Position != start+1 || !ended {
				t.Fatalf("%s: %+v, its context ended: %v", name, fault, ended)
			}
			if got, asks := projection.RequestedAction(fault.Err); !asks || got != c.want {
				t.Errorf("%s: asks for %v", name, got)
			}
			o.Untouched()
		}
	})
}

func TestBlockedEventsOfADeliveryAreParkedInOrder(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 6)
		start := o.Lease.Checkpoint
		all := o.pending()
		// 1 and 4 and 6 are parked, 2, 3 and 5 are delivered.
		batch := engine.Batch{
			Events: append(all[1:3:3], all[4]), BlockedByStream: append(all[:1:1], all[3], all[5]), To: start + 6,
		}
		parked := func(want int64) {
			t.Helper()
			if n, err := o.letters().Count(o.Ctx, projection.DeadLetterFilter{All: true}); n != want || err != nil {
				t.Errorf("%d events are parked, want %d: %v", n, want, err)
			}
		}
		deliver := o.deliveries(failsAfter(2, func(context.Context, handler.Delivery) error {
			parked(1)
			return errOnPurpose
		}), engine.DeliverOptions{})
		// A failed event is handled alone: blocked events before it were parked first.
		if fault := o.partial(deliver(o.Ctx, o.Lease, batch), start+4); fault == nil || fault.Position != start+5 {
			t.Error(fault)
		}
		parked(2)
		o.refresh()
		batch = engine.Batch{Events: batch.Events[2:], BlockedByStream: batch.BlockedByStream[2:], To: start + 6}
		all3 := o.deliveries(failsAfter(1, func(context.Context, handler.Delivery) error { return nil }),
			engine.DeliverOptions{})
		if err := all3(o.Ctx, o.Lease, batch); err != nil || o.Checkpoint() != start+6 {
			t.Errorf("checkpoint %d: %v", o.Checkpoint(), err)
		}
		parked(3)
	})
}

func TestBudgetThatEndsBetweenEventsLosesNothing(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 6)
		var got []int64
		ending := func(end func()) deliveryFunc {
			return handler.DeliverEach(func(ctx context.Context, e event.Envelope, _ string) error {
				got = append(got, e.Position)
				if len(got)%2 == 0 {
					end()
				}
				return nil
			}).Deliver
		}
		// The delivery has to yield in the middle of the second event.
		events := o.pending()
		yield := make(chan struct{})
		deliver := o.deliveries(ending(func() { close(yield) }), engine.DeliverOptions{})
		if fault := o.partial(deliver(o.Ctx, o.Lease,
			engine.Batch{Events: events, To: events[5].Position, Yield: yield}), events[1].Position); fault != nil {
			t.Error(fault)
		}
		// The delivery has to yield before its first event: that is no failure either.
		put := o.deliveries(func(_ context.Context, d handler.Delivery) error {
			if d.Remaining() > 0 {
				t.Error("it does not have to yield")
			}
			return nil
		}, engine.DeliverOptions{})
		o.refresh()
		if fault := o.partial(put(o.Ctx, o.Lease, engine.Batch{Events: events[2:],
			To: events[5].Position, Yield: yield}), events[1].Position); fault != nil {
			t.Error(fault)
		}
		// The timeout passes in the middle of the fourth event.
		o.refresh()
		late := handler.DeliverEach(func(ctx context.Context, e event.Envelope, _ string) error {
			got = append(got, e.Position)
			if len(got) == 4 {
				<-ctx.Done()
			}
			return nil
		}).Deliver
		if fault := o.partial(o.deliver(late, engine.DeliverOptions{Timeout: 400 * time.Millisecond}),
			events[3].Position); fault != nil {
			t.Error(fault)
		}
		o.refresh()
		o.Must(o.deliver(ending(func() {}), engine.DeliverOptions{}))
		if !slices.Equal(got, positionsDelivered(events)) {
			t.Errorf("delivered %v", got)
		}
	})
}

// Receivers detect repeats by the token.
func TestTokenIsTheEventsOwnInEachDelivery(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 3)
		tokens := func() (list []string) {
			_ = o.deliver(func(_ context.Context, d handler.Delivery) error {
				for _, e := range d.Events() {
					list = append(list, d.Token(e))
				}
				return errOnPurpose
			}, engine.DeliverOptions{})
			return list
		}
		first := tokens()
		o.claim()
		if again := tokens(); len(first) != 3 || !slices.Equal(again, first) {
			t.Errorf("tokens %q of the first owner, %q of the second", first, again)
		}
		o.End()
		o.drawer = drawerOf(k, "q")
		k.Append("s", 3)
		all := append(first, tokens()...)
		slices.Sort(all)
		if distinct := slices.Compact(slices.Clone(all)); len(distinct) != 6 {
			t.Errorf("two projections have the tokens %q", all)
		}
	})
}
