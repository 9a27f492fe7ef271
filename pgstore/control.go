package pgstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

// controlSQL are the statements on the control schema, with its name in place.
type controlSQL struct {
	schema          string
	holders         string
	beginRead       string
	incarnation     string
	incarnate       string
	incarnationKept string
	ensure          string
	claim           string
	leases          string
	beginAttempt    string
	beginDelivery   string
	owned           string
	release         string
	advanceMany     string
	recordFailure   string
	park            string
	heartbeat       string
	depart          string
	status          string
	setWanted       string
	wanted          string
	wantedOfNode    string
	setFailed       string
	halt            string
	skip            string
	free            string
	counts          string
	look            string
	bury            string
	leave           string
	nodes           string
	forgetNodes     string
	parkedStreams   string
	nextCommand     string
	beginReplay     string
	resolve         string
	skipReplay      string
	failReplay      string
	discard         string
	finishUnowned   string
	command         string
	outcome         string
	cancel          string
	nextDue         string
	scheduleReplay  string
	countLetters    string
	purge           string
	oldestLetters   string
	newestLetters   string
	oldestSnapshot  string
	probeWrite      string

	// wakeChannel carries wake-ups, controlChannel what concerns leases: see projection.Notice.
	wakeChannel    string
	controlChannel string
	// batchClass is the class of the advisory locks by which batches announce themselves; the object is the lease's row.
	batchClass int32
}

func newControlSQL(schema string) controlSQL {
	q := func(name string) string { return query(name, schema, "") }
	ofLeases := func(name string) string { return sqltext.Fill(q(name), "{lease}", q("lease_columns")) }
	return controlSQL{
		schema:          schema,
		holders:         q("holders"),
		beginRead:       q("begin_read"),
		incarnation:     q("incarnation"),
		incarnate:       q("make_incarnation"),
		incarnationKept: q("incarnation_kept"),
		ensure:          q("ensure"),
		claim:           q("claim"),
		leases:          ofLeases("leases"),
		beginAttempt:    q("begin_attempt"),
		beginDelivery:   q("begin_delivery"),
		owned:           ofLeases("owned"),
		release:         q("release"),
		advanceMany:     q("advance_many"),
		recordFailure:   q("record_failure"),
		park:            q("park"),
		heartbeat:       q("heartbeat"),
		depart:          q("depart"),
		status:          q("status"),
		setWanted:       q("set_wanted"),
		wanted:          q("wanted"),
		wantedOfNode:    q("wanted_of_node"),
		setFailed:       q("set_failed"),
		halt:            q("halt"),
		skip:            q("skip"),
		free:            q("free"),
		counts:          q("counts"),
		look:            q("look"),
		bury:            q("bury"),
		leave:           q("leave"),
		nodes:           q("nodes"),
		forgetNodes:     q("forget_nodes"),
		parkedStreams:   q("parked_streams"),
		nextCommand:     q("next_command"),
		beginReplay:     q("begin_replay"),
		resolve:         q("resolve"),
		skipReplay:      q("skip_replay"),
		failReplay:      q("fail_replay"),
		discard:         q("discard"),
		finishUnowned:   q("finish_unowned"),
		command:         q("command"),
		outcome:         q("outcome"),
		cancel:          q("cancel"),
		nextDue:         q("next_due"),
		scheduleReplay:  q("schedule_replay"),
		countLetters:    q("count_dead_letters"),
		purge:           q("purge"),
		oldestLetters:   strings.NewReplacer("{beyond}", ">", "{direction}", "asc").Replace(q("dead_letters")),
		newestLetters:   strings.NewReplacer("{beyond}", "<", "{direction}", "desc").Replace(q("dead_letters")),
		oldestSnapshot:  q("oldest_snapshot"),
		probeWrite:      q("probe_write"),
		wakeChannel:     schema + "_wake",
		controlChannel:  schema + "_control",
		batchClass:      lockKey32("millrace batch " + schema),
	}
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
	begin := pgx.TxOptions{BeginQuery: beginDurable + "; " + s.unbounded}
	if err := s.inTx(ctx, begin, fn); err != nil {
		return fmt.Errorf("%s: %w", doing, storeFault(err))
	}
	return nil
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
