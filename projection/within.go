package projection

import (
	"context"

	"github.com/millrace-go/millrace/internal/within"
)

// ErrWithinTx is returned by a call that writes to a store, if its context is that of a transaction of the same store:
// of a handler, its middleware, a hook, InTx, or a TenantStep. The call would commit without the transaction, so a
// batch that is repeated would repeat it. So would a run of a Runtime, or a Tick. AppendTx appends in the transaction.
// OutsideTx allows to write without it. Reads are allowed, except in queued handlers. So are writes to another store,
// or by another Store of the same database: these commit without the transaction as well.
//
// A handler that returns ErrWithinTx or ErrQueuedRead stops its projection: it is counted against no event, since no
// event can be handled before the program is repaired. The projection tries again every 15 s, and when it is resumed.
// An action that the handler requests, as by Park, is carried out.
var ErrWithinTx = within.ErrWithinTx

// ErrQueuedRead is returned by a call that reads events or streams of a store, if its context is that of a queued
// handler of the same store. What the handler queues is executed later, when what it read may have changed. A handler
// of Batch or Each may read. OutsideTx allows a read of what never changes.
var ErrQueuedRead = within.ErrQueuedRead

// OutsideTx returns a context for writes that must commit without the transaction of a handler, whatever becomes of it.
// A batch that is repeated repeats them. The context of a transaction is refused after its end as well, so a goroutine
// that outlives the transaction also needs OutsideTx.
//
// A file has one writer, so a write would wait for the transaction itself. There, OutsideTx has effect from the end of
// the transaction on, and writes before that return ErrWithinTx.
func OutsideTx(ctx context.Context) context.Context { return within.Outside(ctx) }
