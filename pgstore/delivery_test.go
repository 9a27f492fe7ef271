package pgstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/delivery"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/usercode"
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
		opts.Policy = engine.Policy{MaxFailureShare: -1, MaxParked: -1}
	}
	batch := engine.Batch{Events: events, To: events[len(events)-1].Position}
	return o.store.port().deliver(h, opts)(ctx, o.lease, batch)
}

// wantPartial checks how far a delivery came. It returns the fault that ended the delivery, or nil.
func wantPartial(t testing.TB, err error, to int64) *engine.Fault {
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
func failsAfter(n int, then func(ctx context.Context, d engine.Delivery) error) deliveryFunc {
	return func(ctx context.Context, d engine.Delivery) error {
		if n > 0 {
			if err := d.Ack(ctx, d.Events()[n-1].Position); err != nil {
				return err
			}
		}
		return then(ctx, d)
	}
}

func fails(context.Context, engine.Delivery) error { return errOnPurpose }

var errOnPurpose = errors.New("on purpose")

// deadlineUntil is a LeaseDeadline that can be changed.
type deadlineUntil struct {
	until   chan time.Time
	changed chan chan struct{}
}

func newDeadline(until time.Time) *deadlineUntil {
	tr := &deadlineUntil{until: make(chan time.Time, 1), changed: make(chan chan struct{}, 1)}
	tr.until <- until
	tr.changed <- make(chan struct{})
	return tr
}

func (tr *deadlineUntil) deadline() (time.Time, <-chan struct{}) {
	until, changed := <-tr.until, <-tr.changed
	tr.changed <- changed
	tr.until <- until
	return until, changed
}

func (tr *deadlineUntil) set(until time.Time) {
	<-tr.until
	close(<-tr.changed)
	tr.changed <- make(chan struct{})
	tr.until <- until
}

func positionsDelivered(events []event.Envelope) (positions []int64) {
	for _, e := range events {
		positions = append(positions, e.Position)
	}
	return slices.Clip(positions)
}

func TestAcknowledgedPrefixIsKeptAndTheRestComesAgain(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 5)
	first := o.lease.Checkpoint + 1
	err := o.deliver(func(ctx context.Context, d engine.Delivery) error {
		for _, n := range []int64{first + 1, first + 2} {
			if err := d.Ack(ctx, n); err != nil {
				return err
			}
			if at := o.checkpoint(); at != n {
				t.Errorf("acknowledged up to %d, the checkpoint is %d", n, at)
			}
		}
		return nil
	}, engine.DeliverOptions{})
	if fault := wantPartial(t, err, first+2); fault != nil {
		t.Error(fault)
	}
	o.refresh()
	err = o.deliver(func(ctx context.Context, d engine.Delivery) error {
		if got := positionsDelivered(d.Events()); !slices.Equal(got, []int64{first + 3, first + 4}) {
			t.Errorf("left are %v", got)
		}
		return d.Ack(ctx, first+4)
	}, engine.DeliverOptions{})
	if err != nil || o.checkpoint() != first+4 {
		t.Errorf("checkpoint %d: %v", o.checkpoint(), err)
	}
}

func TestInvalidAcknowledgementsAreRefusedByName(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 5)
	first := o.lease.Checkpoint + 1
	err := o.deliver(func(ctx context.Context, d engine.Delivery) error {
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
	if err != nil || o.checkpoint() != first+4 {
		t.Errorf("checkpoint %d: %v", o.checkpoint(), err)
	}
}

func TestFailureBelongsToTheFirstEventThatIsNotDone(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 5)
	start := o.lease.Checkpoint
	for name, c := range map[string]struct {
		then func(ctx context.Context, d engine.Delivery) error
		says string
	}{
		"error": {fails, "on purpose"},
		"panic": {func(context.Context, engine.Delivery) error { panic(errOnPurpose) }, "on purpose"},
		"end":   {func(context.Context, engine.Delivery) error { runtime.Goexit(); return nil }, usercode.ErrGoexit.Error()},
		"named": {func(_ context.Context, d engine.Delivery) error {
			return projection.At(d.Events()[2].Position, errOnPurpose)
		}, "on purpose"},
		"another named": {func(_ context.Context, d engine.Delivery) error {
			return projection.At(d.Events()[4].Position, errOnPurpose)
		}, "first event that is not done"},
		"own time-out": {func(context.Context, engine.Delivery) error { return timeoutError{} }, "did not answer"},
		"lease lost":   {func(context.Context, engine.Delivery) error { return projection.ErrLeaseLost }, "lease lost"},
	} {
		o.refresh()
		o.lease.Checkpoint = start
		mustExec(t, o.store, "update millrace.leases set checkpoint = $1", start)
		fault := wantPartial(t, o.deliver(failsAfter(2, c.then), engine.DeliverOptions{}), start+2)
		if fault == nil || fault.Class != engine.HandlerFault || fault.Position != start+3 || !strings.Contains(fault.Error(), c.says) {
			t.Errorf("%s: %+v", name, fault)
		}
		if name == "panic" && !strings.Contains(fault.Stack, "delivery_test.go") {
			t.Errorf("no stack: %q", fault.Stack)
		}
		if o.checkpoint() != start+2 {
			t.Errorf("%s: checkpoint %d", name, o.checkpoint())
		}
	}
	o.refresh()
	err := o.deliver(failsAfter(0, func(context.Context, engine.Delivery) error { return &pgconn.PgError{Code: "40P01"} }), engine.DeliverOptions{})
	if fault := wantPartial(t, err, start+2); fault == nil || fault.Class != engine.Infrastructure {
		t.Errorf("a server that could not: %v", fault)
	}
	err = o.deliver(func(context.Context, engine.Delivery) error { return nil }, engine.DeliverOptions{})
	if fault := wantPartial(t, err, start+2); fault == nil || fault.Class != engine.HandlerFault || !errors.Is(fault, delivery.ErrNothingDone) {
		t.Errorf("a handler that did nothing: %v", fault)
	}
	err = o.deliver(func(ctx context.Context, d engine.Delivery) error {
		return errors.Join(d.Ack(ctx, start+5), errOnPurpose)
	}, engine.DeliverOptions{})
	if err != nil || o.checkpoint() != start+5 {
		t.Errorf("failed when all was done: checkpoint %d, %v", o.checkpoint(), err)
	}
}

func TestRejectedEventIsParkedAndTheDeliveryContinues(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 4)
	start := o.lease.Checkpoint
	o.lease.FailingPosition, o.lease.Attempts = start+2, 2
	err := o.deliver(func(ctx context.Context, d engine.Delivery) error {
		for _, step := range []error{d.Ack(ctx, start+1), d.Reject(ctx, start+2, errOnPurpose), d.Ack(ctx, start+3), d.Reject(ctx, start+4, projection.Park(errOnPurpose))} {
			if step != nil {
				return step
			}
		}
		return nil
	}, engine.DeliverOptions{})
	if fault := wantPartial(t, err, start+4); fault != nil {
		t.Error(fault)
	}
	letters, err := o.store.DeadLetters(o.lease.ID).List(testContext(t), projection.DeadLetterPage{})
	if err != nil || len(letters) != 2 || letters[0].Position != start+2 || letters[0].Attempts != 3 || letters[0].Error != "on purpose" || letters[1].Attempts != 1 {
		t.Errorf("%+v, %v", letters, err)
	}
	if o.refresh(); o.lease.Parked != 2 || o.lease.Checkpoint != start+4 {
		t.Errorf("%+v", o.lease)
	}
}

func TestRejectionThatConcernsMoreThanItsEventIsLeftToTheProjection(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 3)
	start := o.lease.Checkpoint
	var recent engine.FailureWindow
	for range 30 {
		recent.Failed()
	}
	events := must(o.pending())(t)
	for name, c := range map[string]struct {
		policy engine.Policy
		cause  error
		want   projection.Action
	}{
		"another wish":      {engine.Policy{MaxFailureShare: -1, MaxParked: -1}, projection.Stop(errOnPurpose), projection.ActionStop},
		"streams are kept":  {engine.Policy{MaxFailureShare: -1, MaxParked: -1, OnFailure: projection.ActionParkStream}, errOnPurpose, projection.ActionParkStream},
		"no room":           {engine.Policy{MaxFailureShare: -1, MaxParked: 0}, errOnPurpose, projection.ActionPark},
		"nearly all failed": {engine.Policy{MaxFailureShare: 0.5, MaxParked: -1}, errOnPurpose, projection.ActionPark},
	} {
		ended := false
		apply := o.store.port().deliver(func(ctx context.Context, d engine.Delivery) error {
			refused := d.Reject(ctx, start+1, c.cause)
			if !errors.Is(refused, projection.ErrDeliveryOver) || !errors.Is(d.Ack(ctx, start+1), projection.ErrDeliveryOver) {
				t.Errorf("%s: %v", name, refused)
			}
			ended = ctx.Err() != nil && d.Remaining() == 0
			return nil
		}, engine.DeliverOptions{Policy: c.policy})
		err := apply(testContext(t), o.lease, engine.Batch{Events: events, To: start + 3, FailureWindow: recent})
		fault := wantPartial(t, err, start)
		if fault == nil || fault.Class != engine.HandlerFault || fault.Position != start+1 || !ended {
			t.Fatalf("%s: %+v, its context ended: %v", name, fault, ended)
		}
		if got, asks := projection.RequestedAction(fault.Err); !asks || got != c.want {
			t.Errorf("%s: asks for %v", name, got)
		}
		o.untouched()
	}
}

func TestBlockedEventsOfADeliveryAreParkedInOrder(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 6)
	start := o.lease.Checkpoint
	all := must(o.pending())(t)
	// 1 and 4 and 6 are parked, 2, 3 and 5 are delivered.
	batch := engine.Batch{Events: append(all[1:3:3], all[4]), BlockedByStream: append(all[:1:1], all[3], all[5]), To: start + 6}
	parked := func(want int64) {
		t.Helper()
		if n, err := o.store.DeadLetters(o.lease.ID).Count(testContext(t), projection.DeadLetterFilter{All: true}); n != want || err != nil {
			t.Errorf("%d events are parked, want %d: %v", n, want, err)
		}
	}
	deliver := o.store.port().deliver(failsAfter(2, func(context.Context, engine.Delivery) error {
		parked(1)
		return errOnPurpose
	}), engine.DeliverOptions{})
	// A failed event is handled alone: blocked events before it were parked first.
	if fault := wantPartial(t, deliver(testContext(t), o.lease, batch), start+4); fault == nil || fault.Position != start+5 {
		t.Error(fault)
	}
	parked(2)
	o.refresh()
	batch = engine.Batch{Events: batch.Events[2:], BlockedByStream: batch.BlockedByStream[2:], To: start + 6}
	all3 := o.store.port().deliver(failsAfter(1, func(context.Context, engine.Delivery) error { return nil }), engine.DeliverOptions{})
	if err := all3(testContext(t), o.lease, batch); err != nil || o.checkpoint() != start+6 {
		t.Errorf("checkpoint %d: %v", o.checkpoint(), err)
	}
	parked(3)
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
		_ = o.deliver(func(_ context.Context, d engine.Delivery) error {
			for _, e := range d.Events() {
				tokens = append(tokens, d.Token(e))
				if want := fmt.Sprintf("%s/%d/%s", id(), e.Position, strconv.FormatInt(e.Time.UnixMicro(), 36)); d.Token(e) != want {
					t.Errorf("%s: token %q, want %q", name, d.Token(e), want)
				}
			}
			return errOnPurpose
		}, engine.DeliverOptions{})
		if len(tokens) != 2 || tokens[0] == tokens[1] {
			t.Errorf("%s: tokens %q", name, tokens)
		}
	}
	noError(t, o.store.port().Ensure(testContext(t), projectionsOf([]string{projection.DefaultTenant}, "other")))
	if n := one[int64](t, o.store, "select count(distinct token) from millrace.projections"); n != 2 {
		t.Errorf("two projections have %d tokens", n)
	}
}

func TestBudgetThatEndsBetweenEventsLosesNothing(t *testing.T) {
	t.Parallel()
	o := newOwner(t, 6)
	var got []int64
	handler := func(end func()) deliveryFunc {
		return engine.DeliverEach(func(ctx context.Context, e event.Envelope, _ string) error {
			if got = append(got, e.Position); len(got)%2 == 0 {
				end()
			}
			return nil
		}).Deliver
	}
	// The delivery has to yield in the middle of the second event.
	events := must(o.pending())(t)
	yield := make(chan struct{})
	deliver := o.store.port().deliver(handler(func() { close(yield) }), engine.DeliverOptions{})
	if fault := wantPartial(t, deliver(testContext(t), o.lease, engine.Batch{Events: events, To: events[5].Position, Yield: yield}), events[1].Position); fault != nil {
		t.Error(fault)
	}
	// The delivery has to yield before its first event: that is no failure either.
	put := o.store.port().deliver(func(_ context.Context, d engine.Delivery) error {
		if d.Remaining() > 0 {
			t.Error("it is not to come to rest")
		}
		return nil
	}, engine.DeliverOptions{})
	o.refresh()
	if fault := wantPartial(t, put(testContext(t), o.lease, engine.Batch{Events: events[2:], To: events[5].Position, Yield: yield}), events[1].Position); fault != nil {
		t.Error(fault)
	}
	// The timeout passes in the middle of the fourth event.
	o.refresh()
	late := engine.DeliverEach(func(ctx context.Context, e event.Envelope, _ string) error {
		if got = append(got, e.Position); len(got) == 4 {
			<-ctx.Done()
		}
		return nil
	}).Deliver
	if fault := wantPartial(t, o.deliver(late, engine.DeliverOptions{Timeout: 400 * time.Millisecond}), events[3].Position); fault != nil {
		t.Error(fault)
	}
	o.refresh()
	noError(t, o.deliver(handler(func() {}), engine.DeliverOptions{}))
	if !slices.Equal(got, positionsDelivered(events)) {
		t.Errorf("delivered %v", got)
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
	noError(t, o.deliver(engine.DeliverEach(func(context.Context, event.Envelope, string) error { return nil }).Deliver, engine.DeliverOptions{}))
	if got := one[string](t, o.store, "select string_agg(setting, ' ') from public.kept"); got != "on on" {
		t.Errorf("acknowledged with synchronous_commit %q", got)
	}
}
