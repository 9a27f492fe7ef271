package handler

import (
	"context"
	"reflect"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/queued"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/internal/within"
	"github.com/millrace-go/millrace/projection"
)

// Queues is how a store runs handlers that queue their statements. New makes a Queue, and Send executes what was queued
// in a transaction. Class returns the class of an error that a handler returned, as far as the store knows.
type Queues[Tx any] struct {
	New   func() queued.Queue
	Send  func(ctx context.Context, tx Tx, statements []queued.Statement) error
	Class func(err error) faults.Class
}

// HandleQueue makes a Handler of a function that queues the statements for the events of one batch.
func HandleQueue[Tx any](s Queues[Tx], f func(ctx context.Context,
	q queued.Queue, events []event.Envelope) error) Handler {
	return s.handler(true, f == nil, func(c Chain) queueFunc {
		return func(ctx context.Context, q queued.Queue, events []event.Envelope) error {
			return c.call(ctx, events, func(ctx context.Context,
				events []event.Envelope) error {
				return f(ctx, q, events)
			})
		}
	})
}

// HandleQueueEach makes a Handler of a function that queues the statements for one event. They belong to the event.
func HandleQueueEach[Tx any](s Queues[Tx], f func(ctx context.Context,
	q queued.Queue, e event.Envelope) error) Handler {
	return s.handler(false, f == nil, func(c Chain) queueFunc {
		return func(ctx context.Context, q queued.Queue, events []event.Envelope) error {
			causing := causing(ctx, events)
			for i := range events {
				one := func(ctx context.Context, events []event.Envelope) error {
					return f(ctx, q.At(events[0]), events[0])
				}
				if err := named(events[i],
					func() error { return c.call(&causing[i], events[i:i+1:i+1], one) }); err != nil {
					return err
				}
			}
			return nil
		}
	})
}

// HandleQueueType is HandleQueueEach for events of one type, decoded.
func HandleQueueType[Tx any, T event.Typed](s Queues[Tx],
	f func(ctx context.Context, q queued.Queue, e event.Of[T]) error, o ...event.DecodeOption) Handler {
	if f == nil {
		return Handler{Err: errNoFunction}
	}
	return ofType[T](HandleQueueEach(s, decodesEach(f, o)))
}

// HandleQueueTypeBatch is HandleQueue for events of one type, decoded.
func HandleQueueTypeBatch[Tx any, T event.Typed](s Queues[Tx],
	f func(ctx context.Context, q queued.Queue, events []event.Of[T]) error, o ...event.DecodeOption) Handler {
	if f == nil {
		return Handler{Err: errNoFunction}
	}
	return ofType[T](HandleQueue(s, decodesBatch(f, o)))
}

type queueFunc = func(ctx context.Context, q queued.Queue, events []event.Envelope) error

// handler makes a Handler of a function that queues, within middleware.
func (s Queues[Tx]) handler(batches, missing bool, inner func(c Chain) queueFunc) Handler {
	if missing {
		return Handler{Err: errNoFunction}
	}
	return made(func(c Chain) Handler {
		queue := inner(c)
		return Handler{Tx: reflect.TypeFor[Tx](), Batches: batches, Queue: queue,
			Apply: func(ctx context.Context, tx any, events []event.Envelope) error {
				statements, _, err := s.Take(within.MarkQueueWithin(ctx), queue, events)
				if err != nil {
					return err
				}
				return s.Send(ctx, tx.(Tx), statements)
			}}
	})
}

// Take calls the Queue of a Handler for the events of a batch, and returns what it queued, with its size in bytes.
func (s Queues[Tx]) Take(ctx context.Context, queue queueFunc,
	events []event.Envelope) (statements []queued.Statement, size int, err error) {
	q := s.New()
	if err := queue(ctx, q, events); err != nil {
		return nil, 0, err
	}
	return queued.End(q)
}

// Taken is what a handler has queued, with its size in bytes.
type Taken struct {
	Statements []queued.Statement
	Size       int
	// Abandoned reports that the handler did not return.
	Abandoned bool
}

// Call is Take in a goroutine of its own, with a time limit and without a transaction: a handler may hang or end its
// goroutine. If it fails, the error is a *Fault. The methods of the store refuse its context: the batch may be
// repeated, and is applied later.
func (s Queues[Tx]) Call(ctx context.Context, store any, limit time.Duration, queue queueFunc,
	events []event.Envelope) (Taken, error) {
	if len(events) == 0 {
		return Taken{}, nil
	}
	marked := within.MarkQueue(ctx, store)
	late := func() error { return projection.ErrTimeout }
	found := make(chan Taken, 1) // a function that is abandoned may return later
	r := usercode.Within(marked, limit, late, func(ctx context.Context) error {
		statements, size, err := s.Take(ctx, queue, events)
		found <- Taken{Statements: statements, Size: size}
		return err
	})
	if err := faults.OfCall(ctx, r, queuedCall{s.Class}); err != nil {
		return Taken{Abandoned: r.Abandoned}, err
	}
	return <-found, nil
}

// queuedCall is the call of a handler that only queues: no statement has run.
type queuedCall struct{ class func(err error) faults.Class }

func (queuedCall) Works() bool { return true }

func (queuedCall) Excuse(*faults.Fault) {}

func (c queuedCall) Returned(err error) error {
	if err == nil {
		return nil
	}
	return faults.Returned(c.class(err), err)
}
