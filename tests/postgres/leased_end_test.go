package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// A node that finds a lease gone ends its delivery, whether that acknowledges or not.
func TestDeliveryEndsWhenItsLeaseIsFoundGone(t *testing.T) {
	b := setup(t, pgstore.Options{})
	positions := b.Append("a", 3).Positions
	entered, ended := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	zombie := b.Another(millrace.Config{LeaseDuration: 5 * time.Minute, HeartbeatInterval: time.Minute, ReconcileInterval: 20 * time.Millisecond},
		millrace.Projection{Name: "p", Timeout: 5 * time.Minute, Handler: millrace.DeliverEach(func(ctx context.Context, _ millrace.Delivered) error {
			once.Do(func() {
				close(entered)
				<-ctx.Done()
				ended <- context.Cause(ctx)
			})
			return ctx.Err()
		})})
	b.Start(zombie)
	<-entered
	next := b.Another(millrace.Config{ReconcileInterval: 20 * time.Millisecond}, millrace.Projection{Name: "p",
		Handler: millrace.DeliverEach(kit.Freely)})
	b.exec("update millrace.nodes set expires_at = heartbeat_at")
	b.Start(next)
	b.Reaches(next, "p", positions[2])
	select {
	case cause := <-ended:
		if !errors.Is(cause, projection.ErrLeaseLost) {
			t.Errorf("the delivery ended because %v", cause)
		}
	case <-time.After(40 * time.Second):
		t.Fatal("the delivery goes on")
	}
	if s := b.Status(next, "p"); s.Parked != 0 || s.Attempts != 0 {
		t.Errorf("%+v", s)
	}
}
