package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// held is a delivery that waits at its third event, the first time, until its context ends.
type held struct {
	*bundle
	receiver  kit.Receiver
	positions []int64
	entered   chan struct{}
	cause     chan error
	p         millrace.Projection
}

func newHeld(t *testing.T) *held {
	h := &held{bundle: setup(t, pgstore.Options{}), entered: make(chan struct{}), cause: make(chan error, 1)}
	h.positions = h.Append("a", 10).Positions
	var once sync.Once
	h.p = millrace.Projection{Name: "p", Retry: kit.Soon(0), Timeout: 5 * time.Minute,
		Handler: millrace.DeliverEach(h.receiver.Sends(func(ctx context.Context, e millrace.Delivered) (err error) {
			if e.Position == h.positions[2] {
				once.Do(func() {
					close(h.entered)
					select {
					case <-ctx.Done():
					case <-h.Ctx.Done():
					}
					h.cause <- context.Cause(ctx)
					err = ctx.Err()
				})
			}
			return err
		}))}
	return h
}

// mustGoOn checks that the delivery ended for that cause, that nothing was counted, and that the rest arrives.
func (h *held) mustGoOn(rt *millrace.Runtime, want error) {
	h.T.Helper()
	select {
	case cause := <-h.cause:
		if !errors.Is(cause, want) {
			h.T.Errorf("the delivery ended because %v, want %v", cause, want)
		}
	case <-h.Ctx.Done():
		h.T.Fatal("the delivery goes on")
	}
	h.Reaches(rt, "p", h.positions[9])
	h.MustHaveArrived(h.receiver.All(), h.positions, 0)
	if s := h.Status(rt, "p"); s.Parked != 0 || s.Attempts != 0 {
		h.T.Errorf("%+v", s)
	}
}

// Others may take a node whose session is lost for dead, long before its heartbeat runs out.
func TestDeliveryEndsWhenTheSessionIsLost(t *testing.T) {
	t.Parallel()
	h := newHeld(t)
	rt := h.Running(millrace.Config{LeaseDuration: 5 * time.Minute}, h.p)
	<-h.entered
	h.terminateSessions()
	h.mustGoOn(rt, projection.ErrLeaseUnconfirmed)
}

func TestDeliveryEndsWhenHeartbeatsDoNotArrive(t *testing.T) {
	h := newHeld(t)
	const lease = 10 * time.Second // it ends a second before, which a busy machine may need
	rt := h.Running(millrace.Config{Store: tuning.Settings{Heartbeat: 100 * time.Millisecond}, LeaseDuration: lease},
		h.p)
	<-h.entered
	release := h.lock("lock table millrace.nodes in exclusive mode") // which heartbeats need
	began := time.Now()
	var cause error
	select {
	case cause = <-h.cause:
	case <-h.Ctx.Done():
	}
	if took := time.Since(began); took > lease {
		t.Errorf("the delivery went on for %v", took)
	}
	release()
	h.cause <- cause
	h.mustGoOn(rt, projection.ErrLeaseUnconfirmed)
}

// A delivery whose lease was taken can go on, but what it acknowledges has no effect, and the receiver sees one token.
func TestDeliveryWhoseLeaseWasTakenAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	positions := b.Append("a", 10).Positions
	var r kit.Receiver
	entered, taken, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b.Start(b.Another(millrace.Config{Store: tuning.Settings{Heartbeat: time.Minute}, LeaseDuration: 5 * time.Minute},
		millrace.Projection{Name: "p",
			Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
				defer close(over)
				for _, e := range d.Events()[:2] {
					r.Take(e.Position, d.Token(e))
					if err := d.Ack(ctx, e.Position); err != nil {
						return err
					}
				}
				third := d.Events()[2]
				r.Take(third.Position, d.Token(third))
				close(entered)
				<-taken
				if err := d.Ack(ctx, third.Position); !errors.Is(err, projection.ErrLeaseLost) {
					t.Errorf("the zombie's acknowledgement: %v", err)
				}
				if ctx.Err() == nil || d.Remaining() != 0 {
					t.Error("the zombie's delivery goes on")
				}
				return nil
			})}))
	<-entered
	next := b.Another(millrace.Config{Store: tuning.Settings{Reconcile: 20 * time.Millisecond}},
		millrace.Projection{Name: "p", Retry: kit.Soon(0),
			Handler: millrace.DeliverEach(r.Sends(func(ctx context.Context, e millrace.Delivered) error {
				if e.Position == positions[2] {
					close(taken)
					<-over
				}
				return nil
			}))})
	b.exec("update millrace.nodes set expires_at = heartbeat_at")
	b.Start(next)
	b.Reaches(next, "p", positions[9])
	b.MustHaveArrived(r.All(), positions, 1)
	if s := b.Status(next, "p"); s.Parked != 0 || s.Attempts != 0 {
		t.Errorf("%+v", s)
	}
}

// The sessions of acknowledgements and of heartbeats end again and again: nothing is parked, and an effect is repeated
// only where its acknowledgement failed.
func TestDeliverySurvivesTerminatedSessions(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	var positions []int64
	for range 20 {
		positions = append(positions, b.Append("a", 10).Positions...)
	}
	var r kit.Receiver
	lost := 0
	rt := b.Running(millrace.Config{}, millrace.Projection{Name: "p",
		Retry: kit.Soon(0), Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
			for _, e := range d.Events() {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				r.Take(e.Position, d.Token(e))
				kit.Pass(ctx, 2*time.Millisecond)
				if err := d.Ack(ctx, e.Position); err != nil {
					lost++
					return err
				}
			}
			return nil
		})})
	killer := b.elsewhere(pgstore.Options{})
	tick := time.NewTicker(60 * time.Millisecond)
	defer tick.Stop()
	for range 12 {
		<-tick.C
		_, err := killer.Pool().Exec(b.Ctx, `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and application_name = '' and random() < 0.5`)
		if err != nil {
			t.Log(err) // one of its own
		}
	}
	b.Reaches(rt, "p", positions[len(positions)-1])
	t.Logf("%d acknowledgements failed", lost)
	b.MustHaveArrived(r.All(), positions, lost)
	if s := b.Status(rt, "p"); s.Parked != 0 || s.Attempts != 0 {
		t.Errorf("%+v", s)
	}
}

// A node that finds its lease gone ends the delivery, also if that acknowledges nothing.
func TestDeliveryEndsWhenItsLeaseIsFoundGone(t *testing.T) {
	h := newHeld(t)
	slow := millrace.Config{
		Store:         tuning.Settings{Heartbeat: time.Minute, Reconcile: 20 * time.Millisecond},
		LeaseDuration: 5 * time.Minute,
	}
	h.Start(h.Another(slow, h.p))
	<-h.entered
	next := h.Another(millrace.Config{Store: tuning.Settings{Reconcile: 20 * time.Millisecond}}, h.p)
	h.exec("update millrace.nodes set expires_at = heartbeat_at")
	h.Start(next)
	h.mustGoOn(next, projection.ErrLeaseLost)
}

// Acknowledgements that wait, here for a lock, hold only a part of the pool.
func TestAcknowledgementsLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.Append("a", 1)
	const deliveries = 12
	var entered, acknowledging sync.WaitGroup
	entered.Add(deliveries)
	acknowledging.Add(deliveries)
	var ended atomic.Int64
	var projections []millrace.Projection
	begin := make(chan struct{})
	for i := range deliveries {
		first := sync.OnceFunc(func() {
			entered.Done()
			<-begin
			acknowledging.Done()
		})
		projections = append(projections, millrace.Projection{Name: fmt.Sprint("p", i),
			Handler: millrace.Deliver(func(ctx context.Context, d *millrace.Delivery) error {
				first()
				defer ended.Add(1)
				return d.Ack(ctx, d.Events()[0].Position)
			})})
	}
	b.Running(millrace.Config{}, projections...)
	b.InTime("all deliver", entered.Wait)
	release := b.lock("select from millrace.leases for update")
	defer release()
	close(begin)
	b.InTime("all acknowledge at once", acknowledging.Wait)
	b.Eventually("acknowledgements wait for the lock", func() bool {
		return value[bool](b,
			"select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')")
	})
	if n := ended.Load(); n != 0 {
		t.Errorf("the pool had no connection until %d acknowledgements were given up", n)
	}
}
