package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

func (s port) Apply(h engine.Handler, o engine.ApplyOptions) engine.Run {
	return func(ctx context.Context, lease engine.Lease, batch engine.Batch) error {
		b := batchTx{store: s.Store, lease: lease, batch: batch, timeout: o.Timeout}
		return b.run(engine.WithProjection(ctx, lease.ID), func(ctx context.Context, tx *sql.Tx) error {
			if len(batch.Events) == 0 {
				return nil
			}
			return h.Apply(ctx, tx, batch.Events)
		})
	}
}

func (s port) Abandoned() int64 { return s.abandoned.Load() }

// batchTx is one fenced transaction of a projection. It begins with a check of the lease and its checkpoint, which nothing can
// change until the end. Then it runs the handler. It ends with the advance and the commit.
type batchTx struct {
	store   *Store
	lease   engine.Lease
	batch   engine.Batch
	timeout time.Duration
	to      dirtied
}

// finishTime bounds the statements after the handler.
const finishTime = 10 * time.Second

func (b *batchTx) run(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	t, err := b.begin(ctx)
	if err != nil {
		return fmt.Errorf("begin a batch of %s: %w", b.lease.ID, storeFault(err))
	}
	abandoned, err := b.call(ctx, t, fn)
	if abandoned {
		t.abandon(ctx)
	} else {
		defer t.end()
	}
	if err != nil {
		return fmt.Errorf("handle a batch of %s: %w", b.lease.ID, err)
	}
	if err := b.finish(ctx, t); err != nil {
		return fmt.Errorf("commit a batch of %s up to %d: %w", b.lease.ID, b.batch.To, err)
	}
	b.to.wake(&b.store.wakes)
	return nil
}

func (b *batchTx) begin(ctx context.Context) (t *transaction, err error) {
	if err := b.store.notWithin(ctx); err != nil {
		return nil, err
	}
	if b.batch.Fresh {
		t, err = b.store.writer.openFresh(ctx)
	} else {
		t, err = b.store.writer.open(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := checkFence(ctx, t.Tx, b.lease); err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

// finish advances the checkpoint and commits.
func (b *batchTx) finish(ctx context.Context, t *transaction) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	ctx = t.takeBack(ctx)
	err := b.store.settleDeadLetters(ctx, t.Tx, b.lease, b.batch)
	if err == nil {
		err = advance(ctx, t.Tx, b.lease, b.batch.To)
	}
	if err != nil {
		return finishFault(err)
	}
	if err := t.commit(ctx); err != nil {
		return classify(err)
	}
	return nil
}
