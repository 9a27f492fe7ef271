package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
	"github.com/millrace-go/millrace/projection"
)

// headsSlice is the maximum number of tenants in one statement. Each takes locks until the transaction ends, and one
// statement with 5,000 tenants ran out of lock memory.
const headsSlice = 250

// Heads implements engine.Store. Each slice of tenants is a transaction of its own.
func (s port) Heads(ctx context.Context, tenants []string) (engine.Heads, error) {
	heads := engine.Heads{Positions: make(map[string]int64, len(tenants)), Failed: make(map[string]error)}
	for slice := range slices.Chunk(tenants, headsSlice) {
		if err := s.headsWithout(ctx, slice, &heads); err != nil {
			return engine.Heads{}, fmt.Errorf("read the heads of %d tenants from %q: %w", len(slice), slice[0], storeFault(err))
		}
	}
	return heads, nil
}

// headsWithout reads the heads of a slice except those of tenants that cannot be read. It leaves out tenants whose
// events are locked, and finds the other unreadable ones by halving the slice.
func (s *Store) headsWithout(ctx context.Context, tenants []string, heads *engine.Heads) error {
	tenants, err := s.withoutLocked(ctx, tenants, heads)
	if err != nil || len(tenants) == 0 {
		return err
	}
	err = s.headsOf(ctx, tenants, heads)
	if pgerr.Is(err, pgerr.LockNotAvailable) {
		if _, findErr := s.findLocked(ctx, time.Now()); findErr != nil {
			return findErr
		}
		rest, findErr := s.withoutLocked(ctx, tenants, heads)
		if findErr != nil {
			return findErr
		}
		if len(rest) < len(tenants) {
			return s.headsWithout(ctx, rest, heads)
		}
	}
	if !isTenants(err) {
		return err
	}
	if len(tenants) == 1 {
		if !pgerr.IsMissing(err) {
			heads.Failed[tenants[0]] = storeFault(err)
		}
		return nil
	}
	middle := len(tenants) / 2
	if err := s.headsWithout(ctx, tenants[:middle], heads); err != nil {
		return err
	}
	return s.headsWithout(ctx, tenants[middle:], heads)
}

// isTenants reports whether err may concern only one of several tenants, whose tables are missing, locked or not readable.
func isTenants(err error) bool {
	return pgerr.IsMissing(err) || pgerr.Is(err, pgerr.LockNotAvailable, pgerr.InsufficientPrivilege, pgerr.UndefinedColumn)
}

func (s *Store) headsOf(ctx context.Context, tenants []string, heads *engine.Heads) error {
	// One part for each tenant, around queries/head.sql: no file could hold it.
	var sql strings.Builder
	for i, name := range tenants {
		t, err := s.ForTenant(name)
		if err != nil {
			return err
		}
		if i > 0 {
			sql.WriteString(" union all ")
		}
		fmt.Fprintf(&sql, "select %d, (%s)", i, t.sql("head"))
	}
	in, err := s.readEvents(ctx, sql.String(), nil, nil, func(rows *pgconn.ResultReader) error {
		return wire.ReadInts(rows, func(row []int64) { heads.Positions[tenants[row[0]]] = row[1] })
	})
	switch {
	case err != nil:
		return err
	case heads.Incarnation != 0 && heads.Incarnation != in:
		return projection.ErrIncarnationChanged
	}
	heads.Incarnation = in
	return nil
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
		return fmt.Errorf("ping: %w", projection.ErrNotPrimary)
	case readOnly:
		return fmt.Errorf("ping: %w", &engine.Fault{Class: engine.Infrastructure, Probe: true, Err: errReadOnly})
	}
	return nil
}
