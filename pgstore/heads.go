package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// headsSlice is the maximum number of tenants in one statement. Each takes locks until the transaction ends, and one
// statement with 5,000 tenants ran out of lock memory.
const headsSlice = 250

// Heads implements engine.Events. Each slice of tenants is a transaction of its own.
func (r *eventReads) Heads(ctx context.Context, tenants []string) (engine.Heads, error) {
	heads := engine.Heads{Positions: make(map[string]int64, len(tenants)), Failed: make(map[string]error)}
	for slice := range slices.Chunk(tenants, headsSlice) {
		read := func(ctx context.Context, tenants []string) error { return r.headsOf(ctx, tenants, &heads) }
		if err := r.eachReadable(ctx, slice, heads.Failed, read); err != nil {
			return engine.Heads{}, fmt.Errorf("read the heads of %d tenants from %q: %w",
				len(slice), slice[0], storeFault(err))
		}
	}
	return heads, nil
}

// eachReadable calls read with tenants, except with those whose events are locked. It finds the others that cannot be
// read by halving the tenants, and puts their errors into failures.
func (r *eventReads) eachReadable(ctx context.Context, tenants []string, failures map[string]error,
	read func(ctx context.Context, tenants []string) error) error {
	tenants, err := r.withoutLocked(ctx, tenants, failures)
	if err != nil || len(tenants) == 0 {
		return err
	}
	err = read(ctx, tenants)
	if pgerr.Is(err, pgerr.LockNotAvailable) {
		if _, findErr := r.tenantLocks.find(ctx, time.Now()); findErr != nil {
			return findErr
		}
		rest, findErr := r.withoutLocked(ctx, tenants, failures)
		if findErr != nil {
			return findErr
		}
		if len(rest) < len(tenants) {
			return r.eachReadable(ctx, rest, failures, read)
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
	if err := r.eachReadable(ctx, tenants[:middle], failures, read); err != nil {
		return err
	}
	return r.eachReadable(ctx, tenants[middle:], failures, read)
}

// isTenants reports whether err may concern only one of several tenants, whose tables are missing, locked or not
// readable.
func isTenants(err error) bool {
	return pgerr.IsMissing(err) ||
		pgerr.Is(err, pgerr.LockNotAvailable, pgerr.InsufficientPrivilege, pgerr.UndefinedColumn)
}

func (r *eventReads) headsOf(ctx context.Context, tenants []string, heads *engine.Heads) error {
	statement, err := r.headsStatement(tenants)
	if err != nil {
		return err
	}
	positions := make([]int64, len(tenants)) // 0 for tenants without events
	in, err := r.readEvents(ctx, statement, nil, nil, func(rows *pgconn.ResultReader) error {
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
func (r *eventReads) headsStatement(tenants []string) (string, error) {
	parts := make([]string, len(tenants))
	for i, name := range tenants {
		t, err := r.named(name)
		if err != nil {
			return "", err
		}
		parts[i] = strings.Replace(t.sql("heads"), "{n}", strconv.Itoa(i), 1)
	}
	return strings.Join(parts, " union all "), nil
}

// withoutLocked returns the tenants that are not known to be locked. For the others it puts the lock holders into
// failures.
func (r *eventReads) withoutLocked(ctx context.Context, names []string,
	failures map[string]error) (rest []string, err error) {
	for _, name := range names {
		t, err := r.named(name)
		if err != nil {
			return nil, err
		}
		holders, err := r.tenantLocks.holdersOf(ctx, t.schema)
		switch {
		case err != nil:
			return nil, err
		case len(holders) > 0:
			failures[name] = errLockedBy(holders)
		default:
			rest = append(rest, name)
		}
	}
	return rest, nil
}

func (r *eventReads) Absent(ctx context.Context, tenant string) error {
	t, err := r.named(tenant)
	if err != nil {
		return err
	}
	if err := r.headsOf(ctx, []string{tenant}, &engine.Heads{Positions: make(map[string]int64)}); err != nil {
		return storeFault(t.absent(ctx, err))
	}
	return nil
}
