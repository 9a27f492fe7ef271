package tests_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestDeliveryOfALostLeaseDoesNotBegin(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		never := func(context.Context, handler.Delivery) error {
			t.Error("the handler was called")
			return nil
		}
		o := newDeliverer(k, 3)
		o.Lease.Checkpoint-- // as after an acknowledgement whose answer was lost
		o.MustBe(o.deliver(never, engine.DeliverOptions{}), faults.LeaseLost)
		o.refresh()
		o.Next()
		if err := o.deliver(never, engine.DeliverOptions{}); !errors.Is(err, projection.ErrLeaseLost) {
			t.Error(err)
		}
		o.MustBe(o.deliver(never, engine.DeliverOptions{LeaseDeadline: newDeadline(time.Time{}).deadline}),
			faults.Infrastructure)
		o.Untouched()
	})
}

func TestZombieCannotAcknowledgeAndItsDeliveryEnds(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 6)
		o.most = 3
		for name, say := range map[string]func(ctx context.Context, d handler.Delivery, start int64) error{
			"acknowledges": func(ctx context.Context, d handler.Delivery, start int64) error {
				return d.Ack(ctx, start+3)
			},
			"rejects": func(ctx context.Context, d handler.Delivery, start int64) error {
				return d.Reject(ctx, start+2, errOnPurpose)
			},
		} {
			start := o.Lease.Checkpoint
			err := o.deliver(failsAfter(1, func(ctx context.Context, d handler.Delivery) error {
				o.claim()
				if o.Lease.Checkpoint != start+1 {
					t.Errorf("%s: the next owner begins at %d", name, o.Lease.Checkpoint)
				}
				refused := say(ctx, d, start)
				if !errors.Is(refused, projection.ErrLeaseLost) ||
					!errors.Is(untilEnded(t, ctx), projection.ErrLeaseLost) {
					t.Errorf("%s: %v", name, refused)
				}
				if again := d.Ack(ctx, start+2); !errors.Is(again, projection.ErrDeliveryOver) {
					t.Errorf("%s: again: %v", name, again)
				}
				return nil // it hides what happened
			}), engine.DeliverOptions{})
			if fault := o.partial(err, start+1); fault == nil || fault.Class != faults.LeaseLost {
				t.Errorf("%s: %v", name, err)
			}
			if o.Checkpoint() != start+1 {
				t.Errorf("%s: checkpoint %d", name, o.Checkpoint())
			}
		}
		if n, err := o.letters().Count(o.Ctx, projection.DeadLetterFilter{All: true}); n != 0 || err != nil {
			t.Errorf("%d parked, %v", n, err)
		}
	})
}

func TestDeliveryEndsAtTheLeaseDeadline(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 5)
		o.most = 3
		for name, loses := range map[string]func(tr *deadlineUntil){
			"notified":  func(tr *deadlineUntil) { tr.set(time.Time{}) },
			"by itself": func(tr *deadlineUntil) { tr.set(time.Now().Add(50 * time.Millisecond)) },
			"once later": func(tr *deadlineUntil) {
				tr.set(time.Now().Add(time.Hour))
				tr.set(time.Now().Add(50 * time.Millisecond))
			},
		} {
			o.refresh()
			start := o.Lease.Checkpoint
			tr := newDeadline(time.Now().Add(20 * time.Minute))
			err := o.deliverWithin(context.WithoutCancel(o.Ctx),
				failsAfter(1, func(ctx context.Context, d handler.Delivery) error {
					if left := d.Remaining(); left < 10*time.Minute || left > 20*time.Minute {
						t.Errorf("%s: %v are left", name, left)
					}
					tr.set(time.Now().Add(time.Hour)) // a heartbeat
					if left := d.Remaining(); left < 25*time.Minute || left > 30*time.Minute {
						t.Errorf("%s: with a heartbeat %v are left", name, left)
					}
					loses(tr)
					if cause := untilEnded(t, ctx); !errors.Is(cause, projection.ErrLeaseUnconfirmed) ||
						d.Remaining() != 0 {
						t.Errorf("%s: %v", name, cause)
					}
					return errOnPurpose
				}), engine.DeliverOptions{Timeout: 30 * time.Minute, LeaseDeadline: tr.deadline})
			if fault := o.partial(err, start+1); fault == nil || fault.Class != faults.Infrastructure {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestTimeoutCountsAgainstAnEventThatHadTheWholeTime(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 3)
		start := o.Lease.Checkpoint
		hangs := func(ctx context.Context, _ handler.Delivery) error { <-ctx.Done(); return context.Cause(ctx) }
		short := engine.DeliverOptions{Timeout: 100 * time.Millisecond}
		err := o.deliver(failsAfter(0, hangs), short)
		if fault := o.partial(err, start); fault == nil || fault.Class != faults.Handler ||
			!errors.Is(fault, projection.ErrTimeout) || fault.Position != start+1 {
			t.Errorf("nothing done: %v", fault)
		}
		wishes := func(ctx context.Context, d handler.Delivery) error { return projection.Stop(hangs(ctx, d)) }
		err = o.deliver(failsAfter(1, wishes), short)
		if fault := o.partial(err, start+1); fault == nil || fault.Class != faults.Handler {
			t.Errorf("one done, and something asked for: %v", fault)
		}
		o.refresh()
		err = o.deliver(failsAfter(1, hangs), short)
		if fault := o.partial(err, start+2); fault != nil {
			t.Errorf("one done: %v", fault)
		}
		// An event that is acknowledged late is done all the same.
		o.refresh()
		err = o.deliver(func(ctx context.Context, d handler.Delivery) error {
			<-ctx.Done()
			return d.Ack(ctx, start+3)
		}, short)
		if err != nil || o.Checkpoint() != start+3 {
			t.Errorf("done late: checkpoint %d, %v", o.Checkpoint(), err)
		}
	})
}

func TestDeliveryThatIgnoresItsContextIsAbandoned(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 3)
		start := o.Lease.Checkpoint
		release, late := make(chan struct{}), make(chan error, 1)
		err := o.deliver(func(ctx context.Context, d handler.Delivery) error {
			<-release
			late <- d.Ack(ctx, start+3)
			return nil
		}, engine.DeliverOptions{Timeout: 50 * time.Millisecond})
		if fault := o.partial(err, start); fault == nil || fault.Class != faults.Handler ||
			!errors.Is(fault, projection.ErrAbandoned) {
			t.Error(err)
		}
		close(release)
		if err := <-late; !errors.Is(err, projection.ErrDeliveryOver) || o.Checkpoint() != start {
			t.Errorf("acknowledged after it was abandoned: checkpoint %d, %v", o.Checkpoint(), err)
		}
		if o.Port.Abandoned() != 1 {
			t.Errorf("%d handlers abandoned", o.Port.Abandoned())
		}
	})
}

func TestDeliveryIsNotAtFaultWhenTheRuntimeStops(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 3)
		start := o.Lease.Checkpoint
		ctx, cancel := context.WithCancel(o.Ctx)
		err := o.deliverWithin(ctx, failsAfter(1, func(ctx context.Context, d handler.Delivery) error {
			cancel()
			<-ctx.Done()
			return errors.Join(d.Ack(ctx, start+2), ctx.Err()) // events that are done still count
		}), engine.DeliverOptions{})
		if fault := o.partial(err, start+2); fault == nil || fault.Class != faults.Infrastructure {
			t.Error(err)
		}
	})
}

// A handler that does not return has failed at its event, even if a blocked event before it was parked.
func TestAbandonedDeliveryIsCountedAfterParkedEvents(t *testing.T) {
	kit.Run(t, func(t *testing.T, k *kit.Bundle) {
		o := newDeliverer(k, 3)
		start := o.Lease.Checkpoint
		all := o.pending()
		batch := engine.Batch{Events: all[1:3:3], BlockedByStream: all[:1:1], To: start + 3}
		release := make(chan struct{})
		defer close(release)
		hangs := func(context.Context, handler.Delivery) error { <-release; return nil }
		err := o.deliveries(hangs, engine.DeliverOptions{Timeout: 50 * time.Millisecond})(o.Ctx, o.Lease, batch)
		if fault := o.partial(err, start+1); fault == nil || fault.Class != faults.Handler ||
			fault.Position != start+2 {
			t.Errorf("it is %+v", fault)
		}
	})
}
