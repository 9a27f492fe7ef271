package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/pgstore/internal/session"
)

// begin starts the transaction of a batch, and returns the statements that restore its session when it ends.
func (b *batchTx) begin(ctx context.Context, conn *pgx.Conn) (pgx.Tx, session.Restore, error) {
	if b.store.server.pooling.Lends {
		return b.beginPooled(ctx, conn)
	}
	restore, err := session.Of(ctx, conn)
	if err != nil {
		return nil, restore, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginBatch + "; " + b.setUpSQL()})
	if err != nil {
		b.rollback(ctx, conn, restore)
		closeStandby(ctx, conn, err)
		return nil, restore, err
	}
	return tx, restore, nil
}

// beginPooled is begin where each transaction may have another session. What the session was is read in each of them, which
// costs one round trip more.
func (b *batchTx) beginPooled(ctx context.Context, conn *pgx.Conn) (pgx.Tx, session.Restore, error) {
	restore, err := b.store.sessions.Begin(ctx, conn, beginBatch)
	var tx pgx.Tx
	if err == nil {
		tx, err = conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: b.setUpSQL()}) // The transaction is begun, and pgx need not know.
	}
	if err != nil {
		b.rollback(ctx, conn, restore)
		closeStandby(ctx, conn, err)
		return nil, restore, err
	}
	return tx, restore, nil
}
