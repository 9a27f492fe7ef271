package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

const (
	countTypesSQL = `insert into bench.counts (contender, type, n)
		select $1, t, count(*) from unnest($2::text[]) as t group by t
		on conflict (contender, type) do update set n = counts.n + excluded.n`
	countOneSQL = `insert into bench.counts (contender, type, n) values ($1, $2, 1)
		on conflict (contender, type) do update set n = counts.n + 1`
)

// batchFunc applies events in a transaction.
type batchFunc = func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error

// tally verifies that events arrive in order, each once.
type tally struct{ last, count, faults atomic.Int64 }

func (t *tally) see(events []event.Envelope) {
	for i := range events {
		if t.last.Swap(events[i].Position) >= events[i].Position {
			t.faults.Add(1)
		}
	}
	t.count.Add(int64(len(events)))
}

// inOrder returns a verification that this number of events was seen, in order.
func (t *tally) inOrder(events int) verify {
	return func(context.Context) error {
		if n := t.faults.Load(); n > 0 {
			return fmt.Errorf("%d events were out of order", n)
		}
		if n := t.count.Load(); n != int64(events) {
			return fmt.Errorf("the handler saw %d events, want %d", n, events)
		}
		return nil
	}
}

// setBased handles a batch with one statement.
func setBased(contender string, t *tally) batchFunc {
	return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		t.see(events)
		_, err := tx.Exec(ctx, countTypesSQL, contender, typesOf(events))
		return err
	}
}

// pipelined handles a batch with a statement for each event, in one round trip.
func pipelined(contender string, t *tally) batchFunc {
	return func(ctx context.Context, tx pgx.Tx, events []event.Envelope) error {
		t.see(events)
		var batch pgx.Batch
		for i := range events {
			batch.Queue(countOneSQL, contender, events[i].Type)
		}
		return tx.SendBatch(ctx, &batch).Close()
	}
}

// handlerFunc makes the handler of a contender.
type handlerFunc = func(contender string, t *tally) millrace.Handler

func batchSetBased(contender string, t *tally) millrace.Handler {
	return pgstore.Batch(setBased(contender, t))
}

func queuedSetBased(contender string, t *tally) millrace.Handler {
	return pgstore.Queued(setBasedQueued(contender, t))
}

// queueFunc queues the statements for events.
type queueFunc = func(ctx context.Context, q pgstore.Queue, events []event.Envelope) error

// setBasedQueued is setBased for a handler that queues.
func setBasedQueued(contender string, t *tally) queueFunc {
	return func(_ context.Context, q pgstore.Queue, events []event.Envelope) error {
		t.see(events)
		q.Exec(countTypesSQL, contender, typesOf(events))
		return nil
	}
}

// perEventQueued is perEvent for a handler that queues.
func perEventQueued(contender string, t *tally) func(ctx context.Context, q pgstore.Queue, e event.Envelope) error {
	return func(_ context.Context, q pgstore.Queue, e event.Envelope) error {
		t.see([]event.Envelope{e})
		q.Exec(countOneSQL, contender, e.Type)
		return nil
	}
}

// perEvent handles one event with a statement.
func perEvent(contender string, t *tally) func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
	return func(ctx context.Context, tx pgx.Tx, e event.Envelope) error {
		t.see([]event.Envelope{e})
		_, err := tx.Exec(ctx, countOneSQL, contender, e.Type)
		return err
	}
}

func typesOf(events []event.Envelope) []string {
	types := make([]string, len(events))
	for i := range events {
		types[i] = events[i].Type
	}
	return types
}

// running runs a function until the returned stop is called, which returns its error.
func running(ctx context.Context, run func(ctx context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stopped := false
	return func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		err := <-done
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
}

// while calls fn while run runs, and returns the errors of both.
func while(ctx context.Context, run func(ctx context.Context) error, fn func() error) error {
	stop := running(ctx, run)
	err := fn()
	return errors.Join(err, stop())
}
