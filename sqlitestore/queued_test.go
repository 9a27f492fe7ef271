package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/projection"
)

type queueFunc = func(ctx context.Context, q Queue, events []event.Envelope) error

// queue runs a batch of all that is pending by a handler that queues. If it succeeds, the lease has the new checkpoint.
func (b *batcher) queue(f queueFunc, timeout time.Duration) error {
	b.t.Helper()
	batch := b.pending(1000)
	err := b.store.port().Apply(Queued(f).Engine(), engine.ApplyOptions{Timeout: timeout})(testContext(b.t), b.lease,
		batch)
	if err == nil {
		b.lease.Checkpoint = batch.To
	}
	return err
}

// queueRecords is record for a queue.
func queueRecords(_ context.Context, q Queue, events []event.Envelope) error {
	for _, e := range events {
		q.At(e).Exec("insert into model (position) values ($1)", e.Position)
	}
	return nil
}

// queuesToo queues what queueRecords does, and a statement for the second event after it.
func queuesToo(sql string, args ...any) queueFunc {
	return func(ctx context.Context, q Queue, events []event.Envelope) error {
		err := queueRecords(ctx, q, events)
		q.At(events[1]).Exec(sql, args...)
		return err
	}
}

func TestQueuedBatchCommitsWithItsCheckpoint(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 3)
	held := b.lease
	noError(t, b.queue(queueRecords, limit))
	b.holds(3, 3)
	for name, loses := range map[string]func(l *engine.Lease){
		"checkpoint": func(*engine.Lease) {},
		"owner":      func(l *engine.Lease) { l.Owner, l.Checkpoint = "node-2", 3 },
		"epoch":      func(l *engine.Lease) { l.Epoch, l.Checkpoint = 2, 3 },
	} {
		mustAppend(t, b.store.tenant, "s", event.Any, someEvents(1)...)
		b.lease = held
		loses(&b.lease)
		if err := b.queue(queueRecords, limit); !errors.Is(err, projection.ErrLeaseLost) {
			t.Errorf("%s: %v", name, err)
		}
		b.holds(3, 3)
	}
}

// The writer's turn is taken only when the function has returned.
func TestOthersWriteWhileAQueuedHandlerRuns(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 2)
	other := newBatcherOf(t, b.store, "other")
	noError(t, b.queue(func(ctx context.Context, q Queue, events []event.Envelope) error {
		mustAppend(t, b.store.tenant, "s", event.Any, someEvents(1)...)
		noError(t, other.apply(record, limit))
		noError(t, b.store.InTx(testContext(t), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "insert into model (position) values (10)")
			return err
		}))
		return queueRecords(ctx, q, events)
	}, limit))
	b.holds(3+1+2, 2)
	other.holds(6, 3)
}

// A lease that was lost while the function ran is lost, whatever the function has queued.
func TestQueuedBatchWhoseLeaseIsTakenMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 2)
	err := b.queue(func(ctx context.Context, q Queue, events []event.Envelope) error {
		mustExec(t, b.store, "update millrace_leases set epoch = epoch + 1")
		return queueRecords(ctx, q, events)
	}, limit)
	if !errors.Is(err, projection.ErrLeaseLost) {
		t.Error(err)
	}
	b.holds(0, 0)
}

func TestQueuedStatementThatFailsNamesItsEvent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		class faults.Class
		says  string
		f     queueFunc
	}{
		"constraint": {faults.Handler, "NOT NULL", queuesToo("insert into model (position) values (null)")},
		"function": {
			faults.Handler, "malformed JSON", queuesToo("insert into model (position) values (json($1))", "{"),
		},
		"syntax":   {faults.Handler, "syntax error", queuesToo("insert nothing")},
		"no table": {faults.MissingObject, "absent", queuesToo("insert into absent values (1)")},
		"too long": {faults.Handler, "timeout passed", queuesToo(steps)},
		"argument": {
			faults.Handler, "argument 1", queuesToo("insert into model (position) values ($1)", make(chan int)),
		},
		"commit": {faults.Handler, "commit refused", queuesToo("commit")},
		"rows": {faults.Handler, "changed 0 rows, 1 expected",
			func(ctx context.Context, q Queue, events []event.Envelope) error {
				q.At(events[1]).Expect(1).Exec("update model set position = 1 where position = -1")
				return queueRecords(ctx, q, events)
			}},
		"error of the handler": {faults.Handler, "EOF",
			func(ctx context.Context, q Queue, events []event.Envelope) error {
				return errors.Join(queueRecords(ctx, q, events), projection.At(events[1].Position, io.EOF))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBatcher(t, 3)
			fault := faultOf(t, b.queue(test.f, short))
			if fault.Class != test.class || fault.Position != 2 || !strings.Contains(fault.Error(), test.says) {
				t.Errorf("class %q at %d: %v", fault.Class, fault.Position, fault)
			}
			b.holds(0, 0)
			noError(t, b.queue(queueRecords, limit))
			b.holds(3, 3)
		})
	}
}

// A rollback shows only after the last statement.
func TestQueuedStatementThatEndsTheTransactionFailsTheBatch(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 3)
	fault := faultOf(t, b.queue(queuesToo("rollback"), limit))
	if fault.Class != faults.Handler || !errors.Is(fault, ErrTxControl) {
		t.Errorf("%+v", fault)
	}
	b.holds(0, 0)
	noError(t, b.queue(queueRecords, limit))
	b.holds(3, 3)
}

func TestQueuedStatementThatChangesTheExpectedRows(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 2)
	noError(t, b.queue(func(ctx context.Context, q Queue, events []event.Envelope) error {
		err := queueRecords(ctx, q, events)
		q.Expect(2).Exec("update model set position = position + 10")
		q.Expect(0).Exec("delete from model where position < 10")
		q.Exec("insert into model (position) values (1), (2), (3)")
		return err
	}, limit))
	b.holds(5, 2)
}

func TestQueuedHandlerHasItsTimeLimitAndCannotWriteItself(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 1)
	fault := faultOf(t, b.queue(func(ctx context.Context, _ Queue, _ []event.Envelope) error {
		<-ctx.Done()
		return ctx.Err()
	}, short))
	if fault.Class != faults.Handler || !errors.Is(fault, projection.ErrTimeout) {
		t.Error(fault)
	}
	var kept Queue
	fault = faultOf(t, b.queue(func(ctx context.Context, q Queue, _ []event.Envelope) error {
		kept = q
		if err := b.store.InTx(ctx, func(context.Context, *sql.Tx) error { return nil }); !errors.Is(err,
			projection.ErrWithinTx) {
			t.Error(err)
		}
		_, err := b.store.Append(ctx, "s", event.Any, someEvents(1)...)
		return err
	}, limit))
	if fault.Class != faults.Configuration || !errors.Is(fault, projection.ErrWithinTx) {
		t.Error(fault)
	}
	kept.Exec("insert into model (position) values (1)")
	b.holds(0, 0)
	noError(t, b.queue(func(ctx context.Context, q Queue, events []event.Envelope) error {
		_, err := b.store.Append(projection.OutsideTx(ctx), "s", event.Any, someEvents(1)...)
		return errors.Join(err, queueRecords(ctx, q, events))
	}, limit))
	b.holds(1, 1)
}

// The file is free while a function that was abandoned hangs.
func TestQueuedHandlerThatIgnoresItsContextIsAbandoned(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 1)
	release, ended := make(chan struct{}), make(chan struct{})
	fault := faultOf(t, b.queue(func(ctx context.Context, q Queue, events []event.Envelope) error {
		defer close(ended)
		<-release
		return queueRecords(ctx, q, events)
	}, short))
	if fault.Class != faults.Handler || !errors.Is(fault, projection.ErrAbandoned) ||
		!errors.Is(fault, projection.ErrTimeout) {
		t.Error(fault)
	}
	if n := b.store.port().Abandoned(); n != 1 {
		t.Errorf("%d handlers are abandoned", n)
	}
	noError(t, b.queue(queueRecords, limit))
	close(release)
	<-ended
	b.holds(1, 1)
}

func TestQueuedArgumentsAreEncodedAtOnce(t *testing.T) {
	t.Parallel()
	b := newBatcher(t, 1)
	mustExec(t, b.store, "create table kinds (n, f, b, t, raw, j, list, id, none, own, named, pointer, body)")
	when, id := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), uuid.New()
	type text string
	type point struct{ X int }
	noError(t, b.queue(func(ctx context.Context, q Queue, events []event.Envelope) error {
		raw, list, body, at := []byte{0, 1, 255}, []string{"a", `b"c`}, map[string]any{"a": 1}, &point{7}
		q.Exec("insert into kinds values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $named, $11, $12)", int8(-3), 1.5,
			true, when, raw, body, list, id,
			(*string)(nil), text("x"), at, events[0].Body, sql.Named("named", text("y")))
		raw[0], list[0], body["a"], at.X = 9, "changed", 2, 8
		return nil
	}, limit))
	want := `-3|1.5|1|2026-01-02 03:04:05.000006+00:00|0001FF|{"a":1}|["a","b\"c"]|` + id.String() +
		`|none|x|y|{"X":7}|0|text`
	got := one[string](t, b.store,
		`select concat_ws('|', n, f, b, t, hex(raw), j, list, id, coalesce(none, 'none'), own, named, pointer, body ->> '$', typeof(body)) from kinds`)
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
