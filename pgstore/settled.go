package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore/internal/settle"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
)

// settleFor is how long Settle waits for the appends in progress. Nearly all of them end within milliseconds.
const settleFor = 250 * time.Millisecond

// Settle implements engine.Events. It reads no events. A tenant whose head was handled already is settled. For all others
// it scans the locks, at most every scanInterval, until the transactions that the first scan found have ended.
func (s port) Settle(ctx context.Context, heads engine.Heads, tenants []string) (map[string]engine.Settled, error) {
	settled, err := s.settle(ctx, heads, tenants)
	return settled, failed(err, "settle the events of %d tenants", len(tenants))
}

func (s *Store) settle(ctx context.Context, heads engine.Heads, tenants []string) (map[string]engine.Settled, error) {
	floors, err := s.settledFloors(ctx, tenants)
	if err != nil {
		return nil, err
	}
	settled := make(map[string]engine.Settled, len(tenants))
	waiting := make(map[string]*settle.Settler)
	names := make(map[string]string) // of tenants, by schema
	began := time.Now()
	for _, name := range tenants {
		head, found := heads.Positions[name]
		if !found {
			continue
		}
		// After a restore, the floor is above the head.
		settler := settle.New(min(floors[name], head), head, began)
		if !settler.Waiting() {
			settled[name] = engine.Settled{Mark: head}
			continue
		}
		t, err := s.ForTenant(name)
		if err != nil {
			return nil, err
		}
		waiting[t.schema], names[t.schema] = &settler, name
	}
	for len(waiting) > 0 && time.Since(began) < settleFor {
		if err := s.scanFor(ctx, waiting, heads.Incarnation); err != nil {
			return nil, err
		}
		for schema, settler := range waiting {
			if !settler.Waiting() {
				settled[names[schema]] = engine.Settled{Mark: settler.Mark()}
				delete(waiting, schema)
			}
		}
	}
	for schema, settler := range waiting {
		below, _, holders := settler.Held()
		settled[names[schema]] = engine.Settled{Mark: settler.Mark(), Held: &engine.Held{Below: below, Holders: holders}}
	}
	return settled, nil
}

// scanFor scans the locks for the settlers, by schema. The server must still be in the incarnation in which their heads were
// read.
func (s *Store) scanFor(ctx context.Context, settlers map[string]*settle.Settler, read engine.Incarnation) error {
	schemas := make([]string, 0, len(settlers))
	for schema := range settlers {
		schemas = append(schemas, schema)
	}
	holders, in, err := s.locks.scan(ctx, schemas...)
	if err != nil {
		return err
	}
	if in != read {
		return event.ErrIncarnationChanged
	}
	for schema, settler := range settlers {
		settler.Scan(holders[schema])
	}
	return nil
}

// settledFloors returns the highest position of each tenant that a projection has handled.
func (s *Store) settledFloors(ctx context.Context, tenants []string) (map[string]int64, error) {
	floors := make(map[string]int64, len(tenants))
	list, err := queryPlanned(ctx, s, func(row pgx.CollectableRow) (p engine.TenantPosition, err error) {
		return p, row.Scan(&p.Tenant, &p.Position)
	}, "settled_floors", tenants)
	for _, p := range list {
		floors[p.Tenant] = p.Position
	}
	return floors, err
}

// Ages implements engine.Events. Each slice of positions is a transaction of its own.
func (s port) Ages(ctx context.Context, after []engine.TenantPosition) (map[engine.TenantPosition]time.Duration, error) {
	ages := make(map[engine.TenantPosition]time.Duration, len(after))
	for slice := range slices.Chunk(after, headsSlice) {
		tenants := make([]string, 0, len(slice))
		for _, p := range slice {
			tenants = append(tenants, p.Tenant)
		}
		slices.Sort(tenants)
		err := s.eachReadable(ctx, slices.Compact(tenants), make(map[string]error), func(ctx context.Context, tenants []string) error {
			return s.agesOf(ctx, tenants, slice, ages)
		})
		if err != nil {
			return nil, fmt.Errorf("read the ages of %d events: %w", len(slice), storeFault(err))
		}
	}
	return ages, nil
}

// agesOf reads the ages of the first events after those positions that belong to the tenants.
func (s *Store) agesOf(ctx context.Context, tenants []string, after []engine.TenantPosition, ages map[engine.TenantPosition]time.Duration) error {
	var parts union
	for i, p := range after {
		if !slices.Contains(tenants, p.Tenant) {
			continue
		}
		t, err := s.ForTenant(p.Tenant)
		if err != nil {
			return err
		}
		parts.add(i, strings.ReplaceAll(t.sql("next_event_age"), "$1", strconv.FormatInt(p.Position, 10)))
	}
	_, err := s.readEvents(ctx, parts.String(), nil, nil, func(rows *pgconn.ResultReader) error {
		return wire.ReadInts(rows, func(row []int64) {
			if row[1] >= 0 {
				ages[after[row[0]]] = time.Duration(row[1]) * time.Microsecond
			}
		})
	})
	return err
}
