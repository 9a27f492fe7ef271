// Package within marks the contexts of functions that a store calls within a transaction, so that the store can refuse
// writes that would commit without that transaction.
package within

import (
	"context"
	"errors"
	"sync/atomic"
)

// ErrWithinTx is the error of such a write.
var ErrWithinTx = errors.New("the context is that of a transaction of this store, and the call would commit without it: " +
	"append by AppendTx with the transaction, or pass projection.OutsideTx(ctx)")

// ErrQueuedRead is the error of a read by a function that queues the statements of a batch.
var ErrQueuedRead = errors.New("the context is that of a queued handler, which must not read: its statements are executed later, when " +
	"what it read may have changed: read in a handler of Batch or Each, or pass projection.OutsideTx(ctx)")

type markKey struct{}

// mark is one transaction that a context is within, or the leave of those outside of it.
type mark struct {
	outer *mark
	// store is nil for a mark of Outside.
	store any
	// queues reports that the function queues statements for a transaction that begins later.
	queues bool
	ended  atomic.Bool
}

// Mark marks a context as that of a transaction of a store. The mark stays when the transaction has ended: what
// outlives it may be repeated with it. end notes the end of the transaction.
func Mark(ctx context.Context, store any) (_ context.Context, end func()) {
	m := &mark{outer: current(ctx), store: store}
	return context.WithValue(ctx, markKey{}, m), func() { m.ended.Store(true) }
}

// MarkQueue marks a context as that of a function that queues statements for a later transaction of a store. No
// transaction is open for which a write outside of it would have to wait.
func MarkQueue(ctx context.Context, store any) context.Context {
	marked, end := Mark(ctx, store)
	current(marked).queues = true
	end()
	return marked
}

// MarkQueueWithin marks the context of a transaction as that of a function that queues statements for it.
func MarkQueueWithin(ctx context.Context) context.Context {
	m := current(ctx)
	if m == nil {
		return ctx
	}
	marked := &mark{outer: m, store: m.store, queues: true}
	marked.ended.Store(true) // m says when the transaction ends
	return context.WithValue(ctx, markKey{}, marked)
}

// Outside returns a context with which writes are allowed.
func Outside(ctx context.Context) context.Context {
	if current(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, markKey{}, &mark{outer: current(ctx)})
}

func current(ctx context.Context) *mark {
	m, _ := ctx.Value(markKey{}).(*mark)
	return m
}

// markOf returns the innermost mark of the store, nil if the context has none or is that of Outside.
func markOf(ctx context.Context, store any) *mark {
	for m := current(ctx); m != nil && m.store != nil; m = m.outer {
		if m.store == store {
			return m
		}
	}
	return nil
}

// Refuse returns ErrWithinTx if the context is that of a transaction of the store, unless it is that of Outside.
func Refuse(ctx context.Context, store any) error {
	if markOf(ctx, store) != nil {
		return ErrWithinTx
	}
	return nil
}

// RefuseRead returns ErrQueuedRead if the context is that of a function that queues statements for the store, unless it
// is that of Outside.
func RefuseRead(ctx context.Context, store any) error {
	if m := markOf(ctx, store); m != nil && m.queues {
		return ErrQueuedRead
	}
	return nil
}

// RefuseOpen is Refuse for a store with one writer. A write would wait for a transaction that is open, so RefuseOpen
// then returns ErrWithinTx for a context of Outside as well.
func RefuseOpen(ctx context.Context, store any) error {
	for m := current(ctx); m != nil; m = m.outer {
		if m.store == store && !m.ended.Load() {
			return ErrWithinTx
		}
	}
	return Refuse(ctx, store)
}
