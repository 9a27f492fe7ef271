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
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/projection"
)

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
		deliver := o.store.port().deliver(func(ctx context.Context, d handler.Delivery) error {
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
			err := o.deliver(failsAfter(1, func(ctx context.Context, d handler.Delivery) error {
				armed.Store(true)
				if err := d.Ack(ctx, start+2); err == nil || errors.Is(err, projection.ErrLeaseLost) {
					t.Errorf("acknowledged without an answer: %v", err)
				}
				if d.Remaining() != 0 || ctx.Err() == nil {
					t.Error("the delivery goes on")
				}
				return errOnPurpose
			}), engine.DeliverOptions{})
			if fault := wantPartial(t, err, start+1); fault == nil || fault.Class != faults.Infrastructure {
				t.Error(err)
			}
			o.refresh()
			if o.lease.Checkpoint != start+c.done {
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
