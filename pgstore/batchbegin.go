package pgstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

const beginBatch = "begin isolation level read committed read write; "

// begin starts the transaction of a batch, and returns what puts its session back when it ends.
func (b *batchTx) begin(ctx context.Context, conn *pgx.Conn) (pgx.Tx, restoring, error) {
	if b.store.pooling.lends {
		return b.beginPooled(ctx, conn)
	}
	restore, err := restoreSQL(ctx, conn)
	if err != nil {
		return nil, restore, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginBatch + b.setUpSQL()})
	if err != nil {
		b.rollback(ctx, conn, restore)
		return nil, restore, err
	}
	return tx, restore, nil
}

// beginPooled is begin where each transaction has another session, so that it is read in each what the session was. That
// costs a round trip more, since pgx does not give the results of what it begins with.
func (b *batchTx) beginPooled(ctx context.Context, conn *pgx.Conn) (pgx.Tx, restoring, error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginBatch})
	if err != nil {
		return nil, restoring{}, err
	}
	results, err := conn.PgConn().Exec(ctx, sessionSettings+"; "+b.setUpSQL()).ReadAll()
	var restore restoring
	if err == nil {
		restore, err = restoreToRows(results[0].Rows)
	}
	if err != nil {
		b.rollback(ctx, conn, restore)
		return nil, restore, err
	}
	return tx, restore, nil
}

// restoreToRows is restoreTo the rows of session_settings as text.
func restoreToRows(rows [][][]byte) (restoring, error) {
	found := make([]setting, len(rows))
	for i, row := range rows {
		pid, err := strconv.ParseUint(string(row[3]), 10, 32)
		if err != nil {
			return restoring{}, fmt.Errorf("read the session's process id: %w", err)
		}
		found[i] = setting{name: string(row[0]), value: string(row[1]), role: string(row[2]), pid: uint32(pid)}
	}
	return restoreTo(found), nil
}
