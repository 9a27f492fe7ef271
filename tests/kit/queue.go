package kit

import (
	"context"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
)

// Queue is the queue of a handler that only writes. It is of the same type in every store.
type Queue struct {
	pgstore.Queue
	record func(name string, events []event.Envelope) (sql string, args []any)
}

type (
	QueueFunc      = func(ctx context.Context, q Queue, events []event.Envelope) error
	QueueEventFunc = func(ctx context.Context, q Queue, e event.Envelope) error
)

// Record records that a projection applied these events, as Tx.Record does.
func (q Queue) Record(name string, events ...event.Envelope) {
	sql, args := q.record(name, events)
	q.Exec(sql, args...)
}

// At is pgstore.Queue.At.
func (q Queue) At(e event.Envelope) Queue { return Queue{q.Queue.At(e), q.record} }

// queues turns a function into one for the queue of a store.
func queues[E any](f func(ctx context.Context, q Queue, e E) error,
	record func(name string, events []event.Envelope) (string, []any)) func(context.Context, pgstore.Queue, E) error {
	return func(ctx context.Context, q pgstore.Queue, e E) error { return f(ctx, Queue{q, record}, e) }
}

// RecordQueued is Record for a queue. Each event has a statement of its own, which names the event if it fails.
func RecordQueued(name string) QueueFunc {
	return func(_ context.Context, q Queue, events []event.Envelope) error {
		for _, e := range events {
			q.At(e).Record(name, e)
		}
		return nil
	}
}

// QueueFails queues a statement that fails, in every store.
func QueueFails(q Queue) { q.Exec("insert into strict (a) values (1), (1)") }

// FailsQueued is RecordQueued, with a statement that fails for each poison event. If named is false, no statement names
// its event.
func FailsQueued(name string, named bool, poison func(e event.Envelope) bool) QueueFunc {
	return func(_ context.Context, q Queue, events []event.Envelope) error {
		for _, e := range events {
			own := q
			if named {
				own = q.At(e)
			}
			own.Record(name, e)
			if poison(e) {
				QueueFails(own)
			}
		}
		return nil
	}
}

// QueuedParking is NewParking with a handler that queues its statements, one of which fails at poison events.
func QueuedParking(b *Bundle) *Parking {
	s := NewParking(b)
	s.P.Handler = s.Store.Queued(FailsQueued("p", true, func(e event.Envelope) bool {
		_, bad := s.Poison.Load(e.Position)
		bad = bad && !s.Mended.Load()
		if bad {
			s.Calls.Add(1)
		}
		return bad
	}))
	return s
}

// QueuedRebuildable is Rebuildable with a handler that queues its statements.
func (b *Bundle) QueuedRebuildable(name string) millrace.Projection {
	p := b.Rebuildable(name)
	p.Handler = b.Store.Queued(RecordQueued(name))
	return p
}

// MustPark checks that one event is parked, after that many attempts.
func (b *Bundle) MustPark(name string, position int64, attempts int) {
	b.T.Helper()
	letters := b.DeadLettersOf(name)
	if len(letters) != 1 || letters[0].Position != position || letters[0].Attempts != attempts ||
		letters[0].State != projection.DeadLetterParked {
		b.T.Errorf("%s: parked %+v, want position %d after %d attempts", name, letters, position, attempts)
	}
}
