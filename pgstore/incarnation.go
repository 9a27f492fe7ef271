package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// readLockWait limits how long a read waits for a lock on a tenant's events: VACUUM FULL or ALTER TABLE must delay only
// that tenant.
const readLockWait = 100 * time.Millisecond

// within calls read, which returns the server's incarnation. If the server has none, within creates it and calls read
// again.
func (s *Store) within(ctx context.Context, read func() error) error {
	err := read()
	if !pgerr.Is(err, pgerr.NoIncarnation) {
		return err
	}
	if _, err := s.pool.Exec(ctx, s.control.sql("make_incarnation")); err != nil {
		return fmt.Errorf("create the server's incarnation: %w", err)
	}
	return read()
}

// checkIncarnation creates the server's incarnation if there is none. It returns an error if that would survive a
// crash.
func (s *Store) checkIncarnation(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, s.control.sql("make_incarnation"), pgx.QueryExecModeExec); err != nil {
		return err
	}
	var kept string
	err := conn.QueryRow(ctx, s.control.sql("incarnation_persistence"), pgx.QueryExecModeExec).Scan(&kept)
	if err == nil && kept != "u" {
		table := s.control.quoted + ".incarnation"
		err = &faults.Fault{Class: faults.Configuration,
			Err: fmt.Errorf("the table %s must be UNLOGGED, since it has to be empty after a crash: run alter table %s set unlogged", table, table)}
	}
	return err
}

// checkLease returns the call of the control schema's function check_lease. It contains only numbers, a UUID and a
// quoted name.
func (c *controlSchema) checkLease(l engine.Lease) string {
	return fmt.Sprintf("%s.check_lease(%d, '%s', %d, %d)", c.quoted, l.Row, l.Owner, l.Epoch, l.Incarnation)
}

// readEvents runs a statement on tenants' events in one round trip and passes its result to decode. It limits the wait
// for locks, and returns the incarnation. Arguments are in text format.
func (s *Store) readEvents(ctx context.Context, sql string, args [][]byte, format []int16,
	decode func(*pgconn.ResultReader) error) (in engine.Incarnation, err error) {
	err = s.within(ctx, func() error {
		return s.onConn(ctx, func(conn *pgx.Conn) (err error) {
			in, err = s.readOn(ctx, conn, sql, args, format, decode)
			return err
		})
	})
	return in, err
}

// readOn reads by prepared statements, if the session may have them.
func (s *Store) readOn(ctx context.Context, conn *pgx.Conn, sql string, args [][]byte, format []int16,
	decode func(*pgconn.ResultReader) error) (engine.Incarnation, error) {
	if name := s.reads.name(sql); name != "" && s.keepsPrepared(conn) {
		in, err := s.readPrepared(ctx, conn, name, sql, args, format, decode)
		if !forgetPrepared(ctx, conn, err, beginReadName, name) {
			return in, err
		}
	}
	var batch pgconn.Batch
	batch.ExecParams(s.control.sql("begin_read"), beginReadArgs(), nil, nil, nil)
	batch.ExecParams(sql, args, nil, nil, format)
	return sendRead(ctx, conn, &batch, decode)
}

// readPrepared reads by prepared statements, which it prepares if the session has not done so.
func (s *Store) readPrepared(ctx context.Context, conn *pgx.Conn, name, sql string, args [][]byte, format []int16,
	decode func(*pgconn.ResultReader) error) (engine.Incarnation, error) {
	if err := prepareAll(ctx, conn, beginReadName, s.control.sql("begin_read"), name, sql); err != nil {
		return 0, err
	}
	var batch pgconn.Batch
	batch.ExecPrepared(beginReadName, beginReadArgs(), nil, nil)
	batch.ExecPrepared(name, args, nil, format)
	return sendRead(ctx, conn, &batch, decode)
}

func beginReadArgs() [][]byte { return [][]byte{wire.Int(readLockWait.Milliseconds())} }

// sendRead sends begin_read.sql and a statement in one message, and passes the result of the statement to decode.
func sendRead(ctx context.Context, conn *pgx.Conn, batch *pgconn.Batch,
	decode func(*pgconn.ResultReader) error) (in engine.Incarnation, err error) {
	results := conn.PgConn().ExecBatch(ctx, batch)
	for i := 0; results.NextResult(); i++ {
		if i > 0 {
			err = decode(results.ResultReader())
			continue
		}
		row := results.ResultReader()
		for row.NextRow() {
			seen, parseErr := strconv.ParseInt(string(row.Values()[1]), 10, 64)
			in, err = engine.Incarnation(seen), parseErr
		}
		if _, closeErr := row.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			break
		}
	}
	if closeErr := results.Close(); closeErr != nil {
		err = closeErr
	}
	return in, err
}
