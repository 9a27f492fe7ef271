package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/pgstore/internal/session"
)

const (
	// openingWait is how long the begin of the next batch waits for a lock at most, since the answer to the commit
	// waits with it. An operation that waits for batches to end holds such a lock, and a batch that is kept apart from
	// the next one does: the commit of a third projection must not wait for that batch.
	openingWait = 5 * time.Millisecond
	// passedFor is how long batches pass a connection on. Then it returns to the pool, which may replace it.
	passedFor = time.Second
)

// begun is an open transaction on a connection. restore restores the session afterwards.
type begun struct {
	leased  *leasedConn
	tx      pgx.Tx
	restore session.Restore
}

// Opening returns nil behind a pooler that gives each transaction another session, and for a pool whose hooks prepare
// each use of a connection.
func (s port) Opening(o engine.ApplyOptions) func(lease engine.Lease) engine.Opening {
	if s.server.pooling.Lends || s.server.preparesUses {
		return nil
	}
	return func(lease engine.Lease) engine.Opening {
		return beginsUnder(s.store, lease, batchOptions{timeout: o.Timeout, asyncCommit: o.AsyncCommit})
	}
}

// Shares reports whether the batches of a handler share messages, and so connections.
func (s port) Shares(h handler.Handler) bool { return h.Queue != nil && !s.server.pooling.Lends }

// Drop implements engine.Opening.
func (b *batchTx) Drop() {
	if b.tx == nil {
		return
	}
	b.rollback(context.Background(), b.leased.conn, b.restore)
	b.release()
}

// release returns the connection to the pool, unless another batch has it now.
func (b *batchTx) release() {
	if b.leased != nil {
		b.leased.release()
	}
	b.begun = begun{}
}

// next returns the batch that the end of this one begins, nil if there is none. If other work may wait for a connection
// of the pool, that comes first.
func (b *batchTx) next() *batchTx {
	if b.slot == nil || time.Since(b.leased.since) > passedFor {
		return nil
	}
	if pool := b.store.pool.Stat(); pool.IdleConns() == 0 && pool.TotalConns() == pool.MaxConns() {
		return nil
	}
	next, _ := b.slot.Promise().(*batchTx)
	return next
}

// pass gives the connection, on which the transaction of the next batch is open, to that batch. The driver's
// transaction knows nothing of the commit, and so serves the next batch as well.
func (b *batchTx) pass(next *batchTx) {
	next.begun, b.begun = b.begun, begun{}
	if !b.slot.Pass() {
		next.Drop()
	}
}

// beginSQL returns the statements that begin the batch in the message that ends another one. The locks that the session
// was left with are released by a query that is needed anyway, since each query is planned.
func (b *batchTx) beginSQL() string {
	return queries.Text("begin_batch") + "; " + b.setUpSQL(min(openingWait, b.lockWait()), session.Unlock+", ")
}
