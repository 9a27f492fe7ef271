package pgstore

import (
	"context"
	"errors"
	"hash/fnv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

// controlSchema is the control schema: the statements on it, and the names that are derived from its own.
type controlSchema struct {
	name string
	// quoted is the name as it stands in statements.
	quoted string
	texts  map[string]string
	// wakeChannel carries wake-ups, controlChannel what concerns leases: see engine.Notice.
	wakeChannel, controlChannel string
	// batchClass is the class of the advisory locks by which batches announce themselves; the object is the lease's row.
	batchClass int32
}

func newControlSchema(name string) controlSchema {
	c := controlSchema{name: name, quoted: sqltext.Name(name), texts: make(map[string]string), wakeChannel: name + "_wake",
		controlChannel: name + "_control", batchClass: lockKey32("millrace batch " + name)}
	for _, statement := range queryNames() {
		c.texts[statement] = sqltext.Fill(queryText(statement), "{lease}", queryText("lease_columns"))
		c.texts[statement] = inSchemas(c.texts[statement], name, "")
	}
	return c
}

// sql returns the statement of queries/name.sql on the control schema. It panics if there is no such file.
func (c *controlSchema) sql(name string) string {
	text, ok := c.texts[name]
	if !ok {
		panic("there is no statement " + name)
	}
	return text
}

// lockKey32 derives an advisory lock's key from a name.
func lockKey32(name string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int32(h.Sum32())
}

// lockKey64 derives an advisory lock's key from a name.
func lockKey64(name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return int64(h.Sum64())
}

// durable runs fn in a transaction of our own that commits synchronously, whatever the session's default is.
func (s *Store) durable(ctx context.Context, doing string, fn func(tx pgx.Tx) error) error {
	begin := pgx.TxOptions{BeginQuery: beginDurable + "; " + s.server.unbounded}
	return failed(s.inTx(ctx, begin, fn), "%s", doing)
}

// queryUncompiled reads rows by a statement that the planner expects to be dear and that is not, without compiling it for
// its one use: with 20,000 leases that took 74 ms of 75. Both go in one round trip and one transaction.
func queryUncompiled[T any](ctx context.Context, pool *pgxpool.Pool, scan pgx.RowToFunc[T], sql string, args ...any) (found []T, err error) {
	var batch pgx.Batch
	batch.Queue(noJIT)
	batch.Queue(sql, args...)
	results := pool.SendBatch(ctx, &batch)
	defer func() { err = errors.Join(err, results.Close()) }()
	if _, err := results.Exec(); err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// execOne runs a statement of ours that must change exactly one row and tells whether it did.
func execOne(ctx context.Context, tx pgx.Tx, sql string, args ...any) (bool, error) {
	var tag pgconn.CommandTag
	tag, err := tx.Exec(ctx, sql, args...)
	return tag.RowsAffected() == 1, err
}
