package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// headsSlice is the maximum number of tenants in one statement. Each takes locks until the transaction ends, and one
// statement with 5,000 tenants ran out of lock memory.
const headsSlice = 250

// Heads implements engine.Events. Each slice of tenants is a transaction of its own.
func (s port) Heads(ctx context.Context, tenants []string) (engine.Heads, error) {
	heads := engine.Heads{Positions: make(map[string]int64, len(tenants)), Failed: make(map[string]error)}
	for slice := range slices.Chunk(tenants, headsSlice) {
		read := func(ctx context.Context, tenants []string) error { return s.headsOf(ctx, tenants, &heads) }
		if err := s.eachReadable(ctx, slice, heads.Failed, read); err != nil {
			return engine.Heads{}, fmt.Errorf("read the heads of %d tenants from %q: %w",
				len(slice), slice[0], storeFault(err))
		}
	}
	return heads, nil
}

// eachReadable calls read with tenants, except with those whose events are locked. It finds the others that cannot be
// read by halving the tenants, and puts their errors into failures.
func (s *Store) eachReadable(ctx context.Context, tenants []string, failures map[string]error,
	read func(ctx context.Context, tenants []string) error) error {
	tenants, err := s.withoutLocked(ctx, tenants, failures)
	if err != nil || len(tenants) == 0 {
		return err
	}
	err = read(ctx, tenants)
	if pgerr.Is(err, pgerr.LockNotAvailable) {
		if _, findErr := s.findLocked(ctx, time.Now()); findErr != nil {
			return findErr
		}
		rest, findErr := s.withoutLocked(ctx, tenants, failures)
		if findErr != nil {
			return findErr
		}
		if len(rest) < len(tenants) {
			return s.eachReadable(ctx, rest, failures, read)
		}
	}
	if !isTenants(err) {
		return err
	}
	if len(tenants) == 1 {
		if !pgerr.IsMissing(err) {
			failures[tenants[0]] = storeFault(err)
		}
		return nil
	}
	middle := len(tenants) / 2
	if err := s.eachReadable(ctx, tenants[:middle], failures, read); err != nil {
		return err
	}
	return s.eachReadable(ctx, tenants[middle:], failures, read)
}

// isTenants reports whether err may concern only one of several tenants, whose tables are missing, locked or not
// readable.
func isTenants(err error) bool {
	return pgerr.IsMissing(err) ||
		pgerr.Is(err, pgerr.LockNotAvailable, pgerr.InsufficientPrivilege, pgerr.UndefinedColumn)
}

func (s *Store) headsOf(ctx context.Context, tenants []string, heads *engine.Heads) error {
	statement, err := s.headsStatement(tenants)
	if err != nil {
		return err
	}
	positions := make([]int64, len(tenants)) // 0 for tenants without events
	in, err := s.readEvents(ctx, statement, nil, nil, func(rows *pgconn.ResultReader) error {
		return wire.ReadInts(rows, func(row []int64) { positions[row[0]] = row[1] })
	})
	switch {
	case err != nil:
		return err
	case heads.Incarnation != 0 && heads.Incarnation != in:
		return event.ErrIncarnationChanged
	}
	heads.Incarnation = in
	for i, name := range tenants {
		heads.Positions[name] = positions[i]
	}
	return nil
}

// headsStatement returns the statement that reads the heads of these tenants, by their places in the list.
func (s *Store) headsStatement(tenants []string) (string, error) {
	parts := make([]string, len(tenants))
	for i, name := range tenants {
		t, err := s.ForTenant(name)
		if err != nil {
			return "", err
		}
		parts[i] = strings.Replace(t.sql("heads"), "{n}", strconv.Itoa(i), 1)
	}
	return strings.Join(parts, " union all "), nil
}

// errReadOnly is returned where sessions cannot write.
var errReadOnly = errors.New("default_transaction_read_only is on, but must be off: nothing could be appended")

func (s port) Ping(ctx context.Context) error {
	var recovery, readOnly bool
	err := s.pool.QueryRow(ctx, queries.Text("ping"), pgx.QueryExecModeExec).Scan(&recovery, &readOnly)
	switch {
	case err != nil:
		return fmt.Errorf("ping: %w", storeFault(err))
	case recovery:
		return fmt.Errorf("ping: %w", event.ErrNotPrimary)
	case readOnly:
		return fmt.Errorf("ping: %w", &faults.Fault{Class: faults.Infrastructure, Probe: true, Err: errReadOnly})
	}
	return nil
}
