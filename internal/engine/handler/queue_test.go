package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/queued"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/internal/within"
	"github.com/millrace-go/millrace/projection"
)

// logQueues notes the statements in the log, with the events to which they belong. Arguments are texts.
var logQueues = Queues[*log]{
	New: func() queued.Queue {
		return queued.New(func(string) error { return nil }, func(arg any) (any, int, error) {
			if text, is := arg.(string); is {
				return text, len(text), nil
			}
			return nil, 0, io.ErrNoProgress
		})
	},
	Send: func(_ context.Context, l *log, statements []queued.Statement) error {
		l.calls = append(l.calls, shown(statements)...)
		return nil
	},
}

func shown(statements []queued.Statement) (lines []string) {
	for _, s := range statements {
		lines = append(lines, fmt.Sprintf("%s %v at %d", s.SQL, s.Args, s.At))
	}
	return lines
}

func queueEach(_ context.Context, q queued.Queue, e event.Envelope) error {
	q.Exec("each", e.Type)
	return nil
}

func queueBatch(_ context.Context, q queued.Queue, events []event.Envelope) error {
	q.Exec(fmt.Sprint("batch of ", len(events)))
	return nil
}

func queueOpened(_ context.Context, q queued.Queue, e event.Of[opened]) error {
	q.Exec(fmt.Sprint("opened ", e.Body.N))
	return nil
}

func queueClosed(_ context.Context, q queued.Queue, events []event.Of[closed]) error {
	q.At(events[0].Envelope).Exec(fmt.Sprint("closed ", len(events)))
	return nil
}

// takes calls what a handler queues by, and returns what it queued.
func takes(t *testing.T, h Handler, events []event.Envelope) []string {
	t.Helper()
	statements, _, err := logQueues.Take(t.Context(), h.Queue, events)
	if err != nil {
		t.Error(err)
	}
	return shown(statements)
}

// A handler that queues is called once, whether its statements are sent by the store or in a transaction.
func TestHandlerThatQueuesDoesTheSameInATransaction(t *testing.T) {
	for name, test := range map[string]struct {
		h      Handler
		events []event.Envelope
		want   []string
		around []string
	}{
		"batch": {
			HandleQueue(logQueues, queueBatch), list("a", "b"), []string{"batch of 2 [] at 0"}, []string{"m 1+2"},
		},
		"each": {
			HandleQueueEach(logQueues, queueEach), list("a", "b"), []string{"each [a] at 1", "each [b] at 2"},
			[]string{"m 1+1", "m 2+1"},
		},
		"type": {HandleQueueType(logQueues, queueOpened), list("opened", "opened"),
			[]string{"opened 10 [] at 1", "opened 20 [] at 2"},
			[]string{"m 1+1", "m 2+1"}},
		"types": {
			HandleQueueTypeBatch(logQueues, queueClosed), list("closed", "closed"), []string{"closed 2 [] at 1"},
			[]string{"m 1+2"},
		},
		"route": {Route[*log](HandleQueueType(logQueues, queueOpened), HandleQueueTypeBatch(logQueues, queueClosed)),
			list("closed", "closed", "opened", "closed"),
			[]string{"closed 2 [] at 1", "opened 30 [] at 3", "closed 1 [] at 4"}, []string{"m 1+2", "m 3+1", "m 4+1"}},
		"route of one": {
			Route[*log](HandleQueueType(logQueues, queueOpened)), list("opened"), []string{"opened 10 [] at 1"},
			[]string{"m 1+1"},
		},
	} {
		if test.h.Err != nil {
			t.Fatal(name, test.h.Err)
		}
		noted := &log{}
		around := test.h.Within(chainOf(t, func(next Call) Call {
			return func(ctx context.Context, events []event.Envelope) error {
				noted.calls = append(noted.calls, fmt.Sprintf("m %d+%d", events[0].Position, len(events)))
				return next(ctx, events)
			}
		}))
		for _, h := range []Handler{test.h, around} {
			var l log
			if err := h.Apply(t.Context(), &l, test.events); err != nil || !slices.Equal(l.calls, test.want) {
				t.Errorf("%s in a transaction: %q, %v, want %q", name, l.calls, err, test.want)
			}
			if got := takes(t, h, test.events); !slices.Equal(got, test.want) {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		}
		if want := append(slices.Clone(test.around), test.around...); !slices.Equal(noted.calls, want) {
			t.Errorf("%s: middleware was called %q, want %q", name, noted.calls, want)
		}
	}
}

// A handler that has another one in it uses its transaction.
func TestRouteQueuesOnlyIfAllItsHandlersDo(t *testing.T) {
	mixed := Route[*log](On(onOpened), HandleQueueTypeBatch(logQueues, queueClosed))
	around := mixed.Within(chainOf(t, noting(&log{}, "m")))
	if mixed.Err != nil || mixed.Queue != nil || around.Queue != nil {
		t.Fatalf("it queues: %v", mixed.Err)
	}
	for _, h := range []Handler{mixed, around} {
		var l log
		err := h.Apply(t.Context(), &l, list("closed", "opened", "closed"))
		if want := []string{"closed 1 [] at 1", "2:20", "closed 1 [] at 3"}; err != nil ||
			!slices.Equal(l.calls, want) {
			t.Errorf("%q, %v, want %q", l.calls, err, want)
		}
	}
	for name, h := range map[string]Handler{"Batch": Batch(func(context.Context, *log,
		[]event.Envelope) error {
		return nil
	}), "Route": Route[*log](On(onOpened)),
		"Deliver": Deliver(func(context.Context, Delivery) error { return nil })} {
		if h.Queue != nil {
			t.Errorf("%s queues", name)
		}
	}
	queues := Route[*log](HandleQueueTypeBatch(logQueues, queueClosed), HandleQueueType(logQueues, queueOpened))
	if queues.Batches || !Route[*log](HandleQueueTypeBatch(logQueues, queueClosed)).Batches ||
		HandleQueueEach(logQueues, queueEach).Batches {
		t.Error("handlers of single events take batches")
	}
	if err := queues.Queue(t.Context(), logQueues.New(),
		list("closed", "renamed")); projection.FailedPosition(err) != 2 || !strings.Contains(err.Error(), `"renamed"`) {
		t.Errorf("a type that it does not handle: %v", err)
	}
}

func TestErrorOfAHandlerThatQueuesNamesTheEvent(t *testing.T) {
	each := HandleQueueEach(logQueues, func(_ context.Context, q queued.Queue, e event.Envelope) error {
		q.Exec(e.Type)
		switch e.Type {
		case "argument":
			q.Exec("insert", 7)
		case "panics":
			panic("boom")
		case "fails":
			return io.EOF
		}
		return nil
	})
	both := func(h Handler, events []event.Envelope) (errs []error) {
		_, _, err := logQueues.Take(t.Context(), h.Queue, events)
		l := &log{}
		errs = append(errs, err, h.Apply(t.Context(), l, events))
		if len(l.calls) > 0 {
			t.Errorf("%q was sent", l.calls)
		}
		return errs
	}
	for _, h := range []Handler{each, each.Within(chainOf(t, noting(&log{}, "m")))} {
		for kind, is := range map[string]error{"argument": io.ErrNoProgress, "panics": projection.ErrHandlerPanic,
			"fails": io.EOF} {
			for _, err := range both(h, list("fine", kind, "fine")) {
				if !errors.Is(err, is) || projection.FailedPosition(err) != 2 ||
					(usercode.StackOf(err) != "") != (kind == "panics") {
					t.Errorf("%s: %#v", kind, err)
				}
			}
		}
	}
	bad := list("opened", "opened")
	bad[1].Body = []byte(`{"N": "x"}`)
	var decode *event.DecodeError
	for name, h := range map[string]Handler{"one by one": HandleQueueType(logQueues, queueOpened),
		"a batch": HandleQueueTypeBatch(logQueues,
			func(context.Context, queued.Queue, []event.Of[opened]) error { return nil })} {
		for _, err := range both(h, bad) {
			if projection.FailedPosition(err) != 2 || !errors.As(err, &decode) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestInvalidHandlerThatQueuesHasItsReason(t *testing.T) {
	for i, h := range []Handler{HandleQueue[*log](logQueues, nil), HandleQueueEach[*log](logQueues, nil),
		HandleQueueType[*log, opened](logQueues, nil),
		HandleQueueTypeBatch[*log, opened](logQueues, nil)} {
		if h.Err != errNoFunction {
			t.Errorf("%d: %v", i, h.Err)
		}
	}
	twice := Route[*log](HandleQueueType(logQueues, queueOpened), On(onOpened))
	if twice.Err == nil || !strings.Contains(twice.Err.Error(), "handled twice") {
		t.Error(twice.Err)
	}
	if h := HandleQueueType(logQueues, func(context.Context,
		queued.Queue, event.Of[pointed]) error {
		return nil
	}); h.Err == nil {
		t.Error("an event type that has no name")
	}
}

// wantClassOf checks the class of the fault of a call.
func wantClassOf(t *testing.T, err error, want faults.Class) *faults.Fault {
	t.Helper()
	var fault *faults.Fault
	if !errors.As(err, &fault) || fault.Class != want {
		t.Fatalf("%v, want a fault of class %q", err, want)
	}
	return fault
}

// queueCall is how a function that queues may end that is called with a time limit of a second.
type queueCall struct {
	f         queueFunc
	class     faults.Class // none if the call succeeds
	is        error
	position  int64
	abandoned bool
	took      time.Duration
}

func queueCalls(cancel context.CancelCauseFunc) map[string]queueCall {
	stops := errors.New("the node stops")
	queues := func(end func(ctx context.Context) error) queueFunc {
		return func(ctx context.Context, q queued.Queue, events []event.Envelope) error {
			q.At(events[1]).Exec("a")
			return end(ctx)
		}
	}
	waits := func(d time.Duration, err error) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			<-ctx.Done()
			return after(d, err)
		}
	}
	return map[string]queueCall{
		"succeeds": {f: queues(func(context.Context) error { return nil })},
		"fails": {
			f: queues(func(context.Context) error { return projection.At(2, io.EOF) }), class: faults.MissingObject,
			is: io.EOF, position: 2,
		},
		"panics": {
			f: queues(func(context.Context) error { panic("boom") }), class: faults.MissingObject,
			is: projection.ErrHandlerPanic,
		},
		"exits": {
			f: queues(func(context.Context) error { runtime.Goexit(); return nil }), class: faults.MissingObject,
			is: usercode.ErrGoexit,
		},
		"is late": {
			f: queues(waits(time.Millisecond, io.EOF)), class: faults.Handler, is: projection.ErrTimeout,
			took: time.Second + time.Millisecond,
		},
		"is done": {f: queues(waits(time.Millisecond, nil)), took: time.Second + time.Millisecond},
		"hangs": {
			f: queues(waits(time.Hour, nil)), class: faults.Handler, is: projection.ErrAbandoned, abandoned: true,
			took: time.Second + usercode.Grace,
		},
		"appends": {
			f: queues(func(context.Context) error { return projection.ErrWithinTx }), class: faults.Configuration,
			is: projection.ErrWithinTx,
		},
		"is stopped": {
			f: queues(func(ctx context.Context) error {
				cancel(stops)
				return waits(time.Millisecond,
					ctx.Err())(ctx)
			}), class: faults.Infrastructure, is: stops, took: time.Millisecond,
		},
		"hangs and is stopped": {
			f:     queues(func(ctx context.Context) error { cancel(stops); return waits(time.Hour, nil)(ctx) }),
			class: faults.Infrastructure, is: stops, abandoned: true, took: usercode.Grace,
		},
	}
}

func after(d time.Duration, err error) error {
	<-time.After(d)
	return err
}

func TestCallOfAQueueEndsInItsTime(t *testing.T) {
	for name := range queueCalls(nil) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			test := queueCalls(cancel)[name]
			queues := logQueues
			queues.Class = func(error) faults.Class { return faults.MissingObject }
			began := time.Now()
			taken, err := queues.Call(ctx, new(int), time.Second, test.f, list("x", "y"))
			if took := time.Since(began); took != test.took || taken.Abandoned != test.abandoned {
				t.Errorf("%s: it took %v, abandoned %v", name, took, taken.Abandoned)
			}
			switch {
			case test.class == "":
				if got := shown(taken.Statements); err != nil || !slices.Equal(got, []string{"a [] at 2"}) ||
					taken.Size == 0 {
					t.Errorf("%s: %q, %d bytes, %v", name, got, taken.Size, err)
				}
			default:
				fault := wantClassOf(t, err, test.class)
				if !errors.Is(err, test.is) || len(taken.Statements) > 0 || fault.Position != test.position ||
					(fault.Stack != "") != (name == "panics") {
					t.Errorf("%s: %+v, %v", name, fault, taken)
				}
			}
			<-time.After(2 * time.Hour) // so that the function ends before the test
		})
	}
}

// What a queued function writes by itself would be repeated with its batch. No transaction is open, so a write outside
// of it waits for nothing.
func TestCallOfAQueueIsWithinATransactionOfTheStore(t *testing.T) {
	store := new(int)
	_, err := logQueues.Call(t.Context(), store, time.Minute,
		func(ctx context.Context, _ queued.Queue, _ []event.Envelope) error {
			if !errors.Is(within.RefuseOpen(ctx, store), projection.ErrWithinTx) ||
				!errors.Is(within.Refuse(ctx, store), projection.ErrWithinTx) {
				t.Error("it may write")
			}
			return errors.Join(within.RefuseOpen(within.Outside(ctx), store), within.RefuseOpen(ctx, new(int)))
		}, list("x"))
	if err != nil {
		t.Error(err)
	}
	none, err := logQueues.Call(t.Context(), store, time.Minute,
		func(context.Context, queued.Queue, []event.Envelope) error { return io.EOF }, nil)
	if err != nil || len(none.Statements) > 0 {
		t.Errorf("of no events: %v, %v", none, err)
	}
}
