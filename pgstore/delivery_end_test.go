package pgstore

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// untilEnded waits for the end of ctx and returns its cause.
func untilEnded(t *testing.T, ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Minute):
		t.Error("the handler's context did not end")
		return nil
	}
}

func TestDeliveryOfALostLeaseDoesNotBegin(t *testing.T) {
	t.Parallel()
	never := func(context.Context, engine.Delivery) error {
		t.Error("the handler was called")
		return nil
	}
	o := newOwner(t, 3)
	o.lease.Checkpoint-- // as after an acknowledgement whose answer got lost
	wantClass(t, o.deliver(never, engine.DeliverOptions{}), engine.LeaseLost)
	o.refresh()
	claimAs(t, o.store, projection.DefaultTenant)
	if err := o.deliver(never, engine.DeliverOptions{}); !errors.Is(err, projection.ErrLeaseLost) {
		t.Error(err)
	}
	wantClass(t, o.deliver(never, engine.DeliverOptions{LeaseDeadline: newDeadline(time.Time{}).deadline}), engine.Infrastructure)
	o.untouched()
}

func TestZombieCannotAcknowledgeAndItsDeliveryEnds(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	start := o.lease.Checkpoint
	for name, say := range map[string]func(ctx context.Context, d engine.Delivery) error{
		"acknowledges": func(ctx context.Context, d engine.Delivery) error { return d.Ack(ctx, start+3) },
		"rejects":      func(ctx context.Context, d engine.Delivery) error { return d.Reject(ctx, start+2, errOnPurpose) },
	} {
		mustExec(t, o.store, "update millrace.leases set checkpoint = $1", start)
		zombie := claimAs(t, o.store, projection.DefaultTenant)
		err := zombie.deliver(failsAfter(1, func(ctx context.Context, d engine.Delivery) error {
			next := claimAs(t, o.store, projection.DefaultTenant)
			if next.lease.Checkpoint != start+1 {
				t.Errorf("%s: the next owner begins at %d", name, next.lease.Checkpoint)
			}
			refused := say(ctx, d)
			if !errors.Is(refused, projection.ErrLeaseLost) || !errors.Is(untilEnded(t, ctx), projection.ErrLeaseLost) {
				t.Errorf("%s: %v", name, refused)
			}
			if again := d.Ack(ctx, start+2); !errors.Is(again, projection.ErrDeliveryOver) {
				t.Errorf("%s: again: %v", name, again)
			}
			return nil // it hides what happened
		}), engine.DeliverOptions{})
		if fault := wantPartial(t, err, start+1); fault == nil || fault.Class != engine.LeaseLost {
			t.Errorf("%s: %v", name, err)
		}
		if zombie.checkpoint() != start+1 {
			t.Errorf("%s: checkpoint %d", name, zombie.checkpoint())
		}
	}
	if n, err := o.store.DeadLetters(o.lease.ID).Count(testContext(t), projection.DeadLetterFilter{All: true}); n != 0 || err != nil {
		t.Errorf("%d parked, %v", n, err)
	}
}

func TestDeliveryEndsAtTheLeaseDeadline(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	start := o.lease.Checkpoint
	for name, loses := range map[string]func(tr *deadlineUntil){
		"notified":  func(tr *deadlineUntil) { tr.set(time.Time{}) },
		"by itself": func(tr *deadlineUntil) { tr.set(time.Now().Add(50 * time.Millisecond)) },
		"once later": func(tr *deadlineUntil) {
			tr.set(time.Now().Add(time.Hour))
			tr.set(time.Now().Add(50 * time.Millisecond))
		},
	} {
		mustExec(t, o.store, "update millrace.leases set checkpoint = $1", start)
		tr := newDeadline(time.Now().Add(20 * time.Minute))
		err := o.deliverWithin(context.WithoutCancel(testContext(t)), failsAfter(1, func(ctx context.Context, d engine.Delivery) error {
			if left := d.Remaining(); left < 10*time.Minute || left > 20*time.Minute {
				t.Errorf("%s: %v are left", name, left)
			}
			tr.set(time.Now().Add(time.Hour)) // a heartbeat
			if left := d.Remaining(); left < 25*time.Minute || left > 30*time.Minute {
				t.Errorf("%s: with a heartbeat %v are left", name, left)
			}
			loses(tr)
			if cause := untilEnded(t, ctx); !errors.Is(cause, projection.ErrLeaseUnconfirmed) || d.Remaining() != 0 {
				t.Errorf("%s: %v", name, cause)
			}
			return errOnPurpose
		}), engine.DeliverOptions{Timeout: 30 * time.Minute, LeaseDeadline: tr.deadline})
		if fault := wantPartial(t, err, start+1); fault == nil || fault.Class != engine.Infrastructure {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTimeoutCountsAgainstAnEventThatHadTheWholeTime(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	start := o.lease.Checkpoint
	hangs := func(ctx context.Context, _ engine.Delivery) error { <-ctx.Done(); return context.Cause(ctx) }
	short := engine.DeliverOptions{Timeout: 100 * time.Millisecond}
	err := o.deliver(failsAfter(0, hangs), short)
	if fault := wantPartial(t, err, start); fault == nil || fault.Class != engine.HandlerFault || !errors.Is(fault, projection.ErrTimeout) || fault.Position != start+1 {
		t.Errorf("nothing done: %v", fault)
	}
	wishes := func(ctx context.Context, d engine.Delivery) error { return projection.Stop(hangs(ctx, d)) }
	err = o.deliver(failsAfter(1, wishes), short)
	if fault := wantPartial(t, err, start+1); fault == nil || fault.Class != engine.HandlerFault {
		t.Errorf("one done, and something asked for: %v", fault)
	}
	o.refresh()
	err = o.deliver(failsAfter(1, hangs), short)
	if fault := wantPartial(t, err, start+2); fault != nil {
		t.Errorf("one done: %v", fault)
	}
	// An event that is acknowledged late is done all the same.
	o.refresh()
	err = o.deliver(func(ctx context.Context, d engine.Delivery) error {
		<-ctx.Done()
		return d.Ack(ctx, start+3)
	}, short)
	if err != nil || o.checkpoint() != start+3 {
		t.Errorf("done late: checkpoint %d, %v", o.checkpoint(), err)
	}
}

// A slow check of the lease takes none of the handler's time.
func TestTimeOfADeliveryBeginsWithItsHandler(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 1)
	const deadline = 2 * time.Second
	conn := strange(t, o.store)
	must(conn.Exec(testContext(t), "begin; lock table millrace.leases in access exclusive mode"))(t)
	events := must(o.pending())(t)
	ended := make(chan error, 1)
	go func() {
		deliver := o.store.port().deliver(func(ctx context.Context, d engine.Delivery) error {
			if left := d.Remaining(); left < deadline/2 {
				t.Errorf("%v are left when the handler begins", left)
			}
			return d.Ack(ctx, events[0].Position)
		}, engine.DeliverOptions{Timeout: deadline})
		ended <- deliver(testContext(t), o.lease, engine.Batch{Events: events, To: events[0].Position})
	}()
	waitBlocked(t, o.store, 1)
	<-time.After(deadline)
	must(conn.Exec(testContext(t), "rollback"))(t)
	noError(t, <-ended)
}

func TestDeliveryThatIgnoresItsContextIsAbandoned(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	start := o.lease.Checkpoint
	release, late := make(chan struct{}), make(chan error, 1)
	err := o.deliver(func(ctx context.Context, d engine.Delivery) error {
		<-release
		late <- d.Ack(ctx, start+3)
		return nil
	}, engine.DeliverOptions{Timeout: 50 * time.Millisecond})
	if fault := wantPartial(t, err, start); fault == nil || fault.Class != engine.HandlerFault || !errors.Is(fault, projection.ErrAbandoned) {
		t.Error(err)
	}
	close(release)
	if err := <-late; !errors.Is(err, projection.ErrDeliveryOver) || o.checkpoint() != start {
		t.Errorf("acknowledged after it was abandoned: checkpoint %d, %v", o.checkpoint(), err)
	}
	if o.store.port().Abandoned() != 1 {
		t.Errorf("%d handlers abandoned", o.store.port().Abandoned())
	}
}

func TestDeliveryIsNotAtFaultWhenTheRuntimeStops(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	start := o.lease.Checkpoint
	ctx, cancel := context.WithCancel(testContext(t))
	err := o.deliverWithin(ctx, failsAfter(1, func(ctx context.Context, d engine.Delivery) error {
		cancel()
		<-ctx.Done()
		return errors.Join(d.Ack(ctx, start+2), ctx.Err()) // events that are done still count
	}), engine.DeliverOptions{})
	if fault := wantPartial(t, err, start+2); fault == nil || fault.Class != engine.Infrastructure {
		t.Error(err)
	}
}

// If the server's answer does not arrive, no event is at fault. The lease's row shows whether the acknowledgement
// succeeded.
func TestAcknowledgementWithoutAnAnswerDoesNotCount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		match string
		done  int64
	}{"begun": {"check_lease", 1}, "committed": {"advance(", 2}} {
		t.Run(name, func(t *testing.T) {
			var armed atomic.Bool
			store := newStore(t, func(config *pgxpool.Config) {
				config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
					return &deafAfter{Conn: conn, match: []byte(c.match), armed: &armed}, err
				}
			})
			makeModel(t, store)
			mustAppend(t, store.tenant, "s", event.Any, someEvents(3)...)
			o := claimAs(t, store, projection.DefaultTenant)
			start := o.lease.Checkpoint
			err := o.deliver(failsAfter(1, func(ctx context.Context, d engine.Delivery) error {
				armed.Store(true)
				if err := d.Ack(ctx, start+2); err == nil || errors.Is(err, projection.ErrLeaseLost) {
					t.Errorf("acknowledged without an answer: %v", err)
				}
				if d.Remaining() != 0 || ctx.Err() == nil {
					t.Error("the delivery goes on")
				}
				return errOnPurpose
			}), engine.DeliverOptions{})
			if fault := wantPartial(t, err, start+1); fault == nil || fault.Class != engine.Infrastructure {
				t.Error(err)
			}
			if o.refresh(); o.lease.Checkpoint != start+c.done {
				t.Errorf("the checkpoint is %d, want %d", o.lease.Checkpoint, start+c.done)
			}
		})
	}
}

// deafAfter is a connection that loses an answer. Once it is armed, it passes on the message that matches, waits for
// the server's answer, and closes.
type deafAfter struct {
	net.Conn
	match []byte
	armed *atomic.Bool
	deaf  atomic.Bool
}

func (c *deafAfter) Write(p []byte) (int, error) {
	if bytes.Contains(p, c.match) && c.armed.CompareAndSwap(true, false) {
		c.deaf.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *deafAfter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.deaf.Load() {
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// A handler that does not return has failed at its event, even if a blocked event before it was parked.
func TestAbandonedDeliveryIsCountedAfterParkedEvents(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	start := o.lease.Checkpoint
	all, err := o.pending()
	if err != nil {
		t.Fatal(err)
	}
	batch := engine.Batch{Events: all[1:3:3], BlockedByStream: all[:1:1], To: start + 3}
	release := make(chan struct{})
	defer close(release)
	hangs := func(context.Context, engine.Delivery) error { <-release; return nil }
	err = o.store.port().deliver(hangs, engine.DeliverOptions{Timeout: 50 * time.Millisecond})(testContext(t), o.lease, batch)
	if fault := wantPartial(t, err, start+1); fault == nil || fault.Class != engine.HandlerFault || fault.Position != start+2 {
		t.Errorf("it is %+v", fault)
	}
}
