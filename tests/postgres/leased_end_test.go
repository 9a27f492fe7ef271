package postgres_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// At the end of the grace period the handler has a while to return, and until then no other node delivers.
func TestNodeDoesNotDepartWhileAHandlerReturns(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	positions := b.append("a", 3).Positions
	entered := make(chan struct{})
	var returned atomic.Bool
	first := b.another(millrace.Config{GracePeriod: 50 * time.Millisecond}, millrace.Projection{Name: "p",
		Handler: millrace.DeliverEach(func(ctx context.Context, _ millrace.Delivered) error {
			close(entered)
			<-ctx.Done()
			pass(b.ctx, 1200*time.Millisecond) // less than it has
			returned.Store(true)
			return ctx.Err()
		})})
	stop := b.start(first)
	<-entered
	next := b.another(millrace.Config{ReconcileInterval: 20 * time.Millisecond}, millrace.Projection{Name: "p",
		Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error {
			if !returned.Load() {
				t.Error("two nodes deliver at once")
			}
			return nil
		})})
	b.start(next)
	b.eventually("both nodes know each other", func() bool {
		s, err := next.Status(b.ctx)
		return err == nil && len(s.Nodes) == 2
	})
	stop()
	b.reaches(next, millrace.ProjectionID{Name: "p"}, positions[2])
}

// A node that finds a lease gone ends its delivery, whether that acknowledges or not.
func TestDeliveryEndsWhenItsLeaseIsFoundGone(t *testing.T) {
	b := setup(t, pgstore.Options{})
	positions := b.append("a", 3).Positions
	entered, ended := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	zombie := b.another(millrace.Config{LeaseDuration: 5 * time.Minute, HeartbeatInterval: time.Minute, ReconcileInterval: 20 * time.Millisecond},
		millrace.Projection{Name: "p", Timeout: 5 * time.Minute, Handler: millrace.DeliverEach(func(ctx context.Context, _ millrace.Delivered) error {
			once.Do(func() {
				close(entered)
				<-ctx.Done()
				ended <- context.Cause(ctx)
			})
			return ctx.Err()
		})})
	b.start(zombie)
	<-entered
	next := b.another(millrace.Config{ReconcileInterval: 20 * time.Millisecond}, millrace.Projection{Name: "p",
		Handler: millrace.DeliverEach(func(context.Context, millrace.Delivered) error { return nil })})
	b.exec("update millrace.nodes set expires_at = heartbeat_at")
	b.start(next)
	b.reaches(next, millrace.ProjectionID{Name: "p"}, positions[2])
	select {
	case cause := <-ended:
		if !errors.Is(cause, projection.ErrLeaseLost) {
			t.Errorf("the delivery ended because %v", cause)
		}
	case <-time.After(40 * time.Second):
		t.Fatal("the delivery goes on")
	}
	if s := b.status(next, "p"); s.Parked != 0 || s.Attempts != 0 {
		t.Errorf("%+v", s)
	}
}
