package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Shares returns false: a file has one writer, and no messages.
func (port) Shares(handler.Handler) bool { return false }

func (s port) Apply(h handler.Handler, o engine.ApplyOptions) engine.ApplyFunc {
	return func(ctx context.Context, lease engine.Lease, batch engine.Batch) error {
		b := newBatchTx(s.store, lease, batch, o.Timeout)
		ctx = handler.WithProjection(ctx, lease.ID)
		if h.Queue != nil {
			return b.runQueued(ctx, h, batch.Events)
		}
		return b.run(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if len(batch.Events) == 0 {
				return nil
			}
			return h.Apply(ctx, tx, batch.Events)
		})
	}
}

func (s port) Abandoned() int64 { return s.store.abandoned.Load() }

// Opening returns nil: only one batch of a file runs at a time, and its begin is not a round trip.
func (s port) Opening(engine.ApplyOptions) func(engine.Lease) engine.Opening { return nil }

// batchTx is one fenced transaction of a projection: a batch, or the hook of an operation. It begins with a check of
// the fence, which nothing can change until the end. Then it runs the handler. It ends with the store's own changes and
// the commit.
type batchTx struct {
	store *Store
	id    projection.ID
	// what describes the transaction in errors. upTo is the checkpoint after a batch.
	what  string
	upTo  int64
	fresh bool
	// alone is set while appends must not ride in the transaction.
	alone   bool
	timeout time.Duration
	to      dirtied
	// check checks the fence, and change makes the changes of the store.
	check, change func(ctx context.Context, tx *sql.Tx) error
}

// newBatchTx returns the transaction of a batch, which advances the checkpoint of a lease.
func newBatchTx(s *Store, lease engine.Lease, batch engine.Batch, timeout time.Duration) *batchTx {
	return &batchTx{store: s, id: lease.ID, what: "a batch", upTo: batch.To, fresh: batch.Fresh, timeout: timeout,
		check: func(ctx context.Context, tx *sql.Tx) error { return checkFence(ctx, tx, lease) },
		change: func(ctx context.Context, tx *sql.Tx) error {
			settle := func(tx store.Tx) error { control.Settle(tx, lease, batch); return nil }
			if err := s.on(ctx, tx).run(settle); err != nil {
				return err
			}
			return advance(ctx, tx, lease, batch.To)
		}}
}

// beginTime bounds how long a batch waits for another process that writes. finishTime bounds the statements after the
// handler.
const beginTime, finishTime = 10 * time.Second, 10 * time.Second

// run runs the transaction. If it shared its commit with appends, and nothing was committed, run repeats it without
// them before anything counts as a failure of the handler.
func (b *batchTx) run(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	err := b.runOnce(ctx, fn)
	if errors.Is(err, errShared) {
		b.alone = true
		err = b.runOnce(ctx, fn)
	}
	return err
}

// runQueued calls a handler that queues its statements before it begins the transaction, so that others may write
// meanwhile. The check of the fence follows: the handler has read nothing that could be outdated.
func (b *batchTx) runQueued(ctx context.Context, h handler.Handler, events []event.Envelope) error {
	taken, err := queues.Call(ctx, b.store.database, b.timeout, h.Queue, events)
	if taken.Abandoned {
		b.store.abandoned.Add(1)
	}
	if err != nil {
		return fmt.Errorf("handle %s of %s: %w", b.what, b.id, err)
	}
	return b.run(ctx, func(ctx context.Context, tx *sql.Tx) error { return sendInTx(ctx, tx, taken.Statements) })
}

func (b *batchTx) runOnce(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	t, err := b.begin(ctx)
	if err != nil {
		return fmt.Errorf("begin %s of %s: %w", b.what, b.id, storeFault(err))
	}
	marked, ended := b.store.mark(ctx)
	defer ended()
	abandoned, err := b.call(marked, t, fn)
	if abandoned {
		t.abandon(ctx)
	} else {
		defer t.end()
	}
	if err != nil {
		return fmt.Errorf("handle %s of %s: %w", b.what, b.id, err)
	}
	if err := b.finish(ctx, t); err != nil {
		if b.upTo > 0 {
			return fmt.Errorf("commit %s of %s up to %d: %w", b.what, b.id, b.upTo, err)
		}
		return fmt.Errorf("commit %s of %s: %w", b.what, b.id, err)
	}
	b.to.wake(&b.store.wakes)
	return nil
}

func (b *batchTx) begin(ctx context.Context) (t *transaction, err error) {
	if err := b.store.notWithin(ctx); err != nil {
		return nil, err
	}
	if b.fresh {
		t, err = b.store.writer.openFresh(ctx, beginTime)
	} else {
		t, err = b.store.writer.open(ctx, beginTime)
	}
	if err != nil {
		return nil, err
	}
	if err := b.check(ctx, t.Tx); err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

// finish makes the changes of the store and commits. The appends that wait are made after the changes, so a checkpoint
// that they set is below the events of these appends.
func (b *batchTx) finish(ctx context.Context, t *transaction) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	ctx = t.takeBack(ctx)
	if err := b.change(ctx, t.Tx); err != nil {
		return finishFault(err)
	}
	commit := t.commitWithRiders
	if b.alone {
		commit = t.commit
	}
	if err := commit(ctx); err != nil {
		return classify(err)
	}
	return nil
}
