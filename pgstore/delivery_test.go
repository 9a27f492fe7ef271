package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/projection"
)

// deliver runs one delivery of all that is pending. The lease stays as it is.
func (o *owner) deliver(h deliveryFunc, opts engine.DeliverOptions) error {
	o.t.Helper()
	return o.deliverWithin(testContext(o.t), h, opts)
}

func (o *owner) deliverWithin(ctx context.Context, h deliveryFunc, opts engine.DeliverOptions) error {
	o.t.Helper()
	events, err := o.pending()
	if err != nil || len(events) == 0 {
		o.t.Fatalf("there is nothing to deliver: %v", err)
	}
	if opts.Policy.MaxFailureShare == 0 {
		opts.Policy = engine.Policy{OnFailure: projection.ActionPark, MaxFailureShare: -1, MaxParked: -1}
	}
	batch := engine.Batch{Events: events, To: events[len(events)-1].Position}
	return o.store.port().deliver(h, opts)(ctx, o.lease, batch)
}

// wantPartial checks how far a delivery came. It returns the fault that ended the delivery, or nil.
func wantPartial(t testing.TB, err error, to int64) *faults.Fault {
	t.Helper()
	var partial *engine.PartialResult
	if !errors.As(err, &partial) {
		t.Fatalf("%v is no partial end", err)
	}
	if partial.To != to {
		t.Errorf("done up to %d, want %d: %v", partial.To, to, err)
	}
	if partial.Err == nil {
		return nil
	}
	return classify(partial.Err)
}

// failsAfter acknowledges that many events and then calls a function.
func failsAfter(n int, then func(ctx context.Context, d handler.Delivery) error) deliveryFunc {
	return func(ctx context.Context, d handler.Delivery) error {
		if n > 0 {
			if err := d.Ack(ctx, d.Events()[n-1].Position); err != nil {
				return err
			}
		}
		return then(ctx, d)
	}
}

var errOnPurpose = errors.New("on purpose")

// A fault of the server that a handler meets, and returns, is not the event's.
func TestFaultOfTheServerInADeliveryIsNotCounted(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 2)
	start := o.lease.Checkpoint
	err := o.deliver(func(context.Context, handler.Delivery) error { return &pgconn.PgError{Code: "40P01"} },
		engine.DeliverOptions{})
	if fault := wantPartial(t, err, start); fault == nil || fault.Class != faults.Infrastructure {
		t.Errorf("a deadlock: %v", fault)
	}
	err = o.deliver(func(context.Context, handler.Delivery) error { return &pgconn.PgError{Code: "23505"} },
		engine.DeliverOptions{})
	if fault := wantPartial(t, err, start); fault == nil || fault.Class != faults.Handler {
		t.Errorf("a unique violation: %v", fault)
	}
}

func TestTokenIsTheEventsOwnAndSurvivesARename(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 2)
	id := func() string {
		return one[string](t, o.store, "select token::text from millrace.projections where name in ('p', 'renamed')")
	}
	var tokens []string
	for _, name := range []string{"p", "renamed"} {
		mustExec(t, o.store, "update millrace.projections set name = '"+name+"' where name = 'p'")
		tokens = nil
		_ = o.deliver(func(_ context.Context, d handler.Delivery) error {
			for _, e := range d.Events() {
				tokens = append(tokens, d.Token(e))
				if want := fmt.Sprintf("%s/%d/%s", id(), e.Position,
					strconv.FormatInt(e.Time.UnixMicro(), 36)); d.Token(e) != want {
					t.Errorf("%s: token %q, want %q", name, d.Token(e), want)
				}
			}
			return errOnPurpose
		}, engine.DeliverOptions{})
		if len(tokens) != 2 || tokens[0] == tokens[1] {
			t.Errorf("%s: tokens %q", name, tokens)
		}
	}
	must(o.store.plane().Ensure(testContext(t), projectionsOf([]string{projection.DefaultTenant}, "other")))(t)
	if n := one[int64](t, o.store, "select count(distinct token) from millrace.projections"); n != 2 {
		t.Errorf("two projections have %d tokens", n)
	}
}

// An acknowledged event must not be delivered again after a crash of the server, whatever the session's default for
// synchronous_commit is.
func TestAcknowledgementWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 2)
	mustExec(t, o.store, `create table public.kept (setting text);
		create function public.keep() returns trigger language plpgsql as
			$$ begin insert into public.kept values (current_setting('synchronous_commit')); return null; end $$;
		create trigger keep after update on millrace.leases for each statement execute function public.keep();
		do $$ begin execute format('alter database %I set synchronous_commit = off', current_database()); end $$`)
	o.store.pool.Reset()
	if before := show(testContext(t), o.store.pool, "synchronous_commit"); before != "off" {
		t.Fatalf("synchronous_commit is %q", before)
	}
	nothing := handler.DeliverEach(func(context.Context, event.Envelope, string) error { return nil })
	noError(t, o.deliver(nothing.Deliver, engine.DeliverOptions{}))
	if got := one[string](t, o.store, "select string_agg(setting, ' ') from public.kept"); got != "on on" {
		t.Errorf("acknowledged with synchronous_commit %q", got)
	}
}
