package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/projection"
)

// headsSlice bounds the tenants of one statement: each takes locks until its transaction ends, and one statement over
// 5,000 tenants ran out of lock memory.
const headsSlice = 250

// Heads returns the highest visible position of each tenant, in slices that are transactions of their own, and the
// incarnation in which all of them were read. A tenant that does not exist is left out.
func (s Port) Heads(ctx context.Context, tenants []string) (projection.Heads, error) {
	heads := projection.Heads{Positions: make(map[string]int64, len(tenants))}
	for len(tenants) > 0 {
		n := min(headsSlice, len(tenants))
		err := s.headsOf(ctx, tenants[:n], &heads)
		if isMissing(err) {
			err = nil
			for i := 0; i < n && err == nil; i++ {
				if err = s.headsOf(ctx, tenants[i:i+1], &heads); isMissing(err) {
					err = nil
				}
			}
		}
		if err != nil {
			return projection.Heads{}, fmt.Errorf("read the heads of %d tenants from %q on: %w", n, tenants[0], ownFault(err))
		}
		tenants = tenants[n:]
	}
	return heads, nil
}

// isMissing tells whether err is about a schema or a table that does not exist.
func isMissing(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "3F000" || pgErr.Code == "42P01")
}

func (s *Store) headsOf(ctx context.Context, tenants []string, heads *projection.Heads) error {
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
		fmt.Fprintf(&sql, "select %d, (%s)", i, t.sql(s.statements.head))
	}
	in, err := s.readEvents(ctx, sql.String(), nil, nil, func(rows *pgconn.ResultReader) error {
		return numbers(rows, func(row []int64) { heads.Positions[tenants[row[0]]] = row[1] })
	})
	if err == nil && heads.Incarnation != 0 && heads.Incarnation != in {
		return projection.ErrIncarnationChanged
	}
	heads.Incarnation = in
	return err
}

// errReadOnly is returned where sessions cannot write.
var errReadOnly = errors.New("default_transaction_read_only is on, but must be off: nothing could be appended")

// Ping tells whether the server can be worked with: it answers, and it is the primary.
func (s Port) Ping(ctx context.Context) error {
	var recovery, readOnly bool
	err := s.pool.QueryRow(ctx, ping, pgx.QueryExecModeExec).Scan(&recovery, &readOnly)
	switch {
	case err != nil:
		return fmt.Errorf("ping: %w", ownFault(err))
	case recovery:
		return fmt.Errorf("ping: %w", projection.ErrNotPrimary)
	case readOnly:
		return fmt.Errorf("ping: %w", &projection.Fault{Class: projection.Infrastructure, Probe: true, Err: errReadOnly})
	}
	return nil
}
