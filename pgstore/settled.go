package pgstore

import (
	"context"
	"fmt"
	"maps"
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

// Settle implements engine.Events. It reads no events. A tenant whose head was handled already is settled. For all
// others it scans the locks, at most every scanInterval, until the transactions that the first scan found have ended.
func (r *eventReads) Settle(ctx context.Context, heads engine.Heads,
	tenants []string) (map[string]engine.Settled, error) {
	settled, err := r.settle(ctx, heads, tenants)
	return settled, wrap(err, "settle the events of %d tenants", len(tenants))
}

func (r *eventReads) settle(ctx context.Context, heads engine.Heads,
	tenants []string) (map[string]engine.Settled, error) {
	floors, err := r.settledFloors(ctx, tenants)
	if err != nil {
		return nil, err
	}
	settled := make(map[string]engine.Settled, len(tenants))
	waiting := make(map[namedTenant]*settle.Settler)
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
		t, err := r.named(name)
		if err != nil {
			return nil, err
		}
		waiting[t] = &settler
	}
	for len(waiting) > 0 && time.Since(began) < settleFor {
		marks, err := r.scanFor(ctx, waiting, heads.Incarnation)
		if err != nil {
			return nil, err
		}
		for tenant, mark := range marks {
			settled[tenant] = engine.Settled{Mark: mark}
		}
	}
	for t, settler := range waiting {
		below, _, holders := settler.Held()
		settled[t.name] = engine.Settled{
			Mark: settler.Mark(), Held: &engine.Held{Below: below, Holders: holders},
		}
	}
	return settled, nil
}

// scanFor scans the locks for the settlers of tenants. It removes those that are settled, and returns their marks. The
// server must still be in the incarnation in which their heads were read.
func (r *eventReads) scanFor(ctx context.Context, settlers map[namedTenant]*settle.Settler,
	read engine.Incarnation) (map[string]int64, error) {
	schemas := make([]string, 0, len(settlers))
	for t := range settlers {
		schemas = append(schemas, t.schema)
	}
	holders, in, err := r.locks.scan(ctx, schemas...)
	switch {
	case err != nil:
		return nil, err
	case in != read:
		return nil, event.ErrIncarnationChanged
	}
	marks := make(map[string]int64)
	for t, settler := range settlers {
		settler.Scan(holders[t.schema])
		if !settler.Waiting() {
			marks[t.name] = settler.Mark()
			delete(settlers, t)
		}
	}
	return marks, nil
}

// settledFloors returns the highest position of each tenant that a projection has handled.
func (r *eventReads) settledFloors(ctx context.Context, tenants []string) (map[string]int64, error) {
	floors := make(map[string]int64, len(tenants))
	position := func(row pgx.CollectableRow) (p engine.TenantPosition, err error) {
		return p, row.Scan(&p.Tenant, &p.Position)
	}
	list, err := queryPlanned(ctx, r.database, forArguments, position, "settled_floors", tenants)
	for _, p := range list {
		floors[p.Tenant] = p.Position
	}
	return floors, err
}

// Ages implements engine.Events. Each slice of tenants is a transaction of its own.
func (r *eventReads) Ages(ctx context.Context,
	after []engine.TenantPosition) (map[engine.TenantPosition]engine.EventAge, error) {
	positions := make(map[string][]int64)
	for _, p := range after {
		positions[p.Tenant] = append(positions[p.Tenant], p.Position)
	}
	ages := make(map[engine.TenantPosition]engine.EventAge, len(after))
	for slice := range slices.Chunk(slices.Sorted(maps.Keys(positions)), headsSlice) {
		read := func(ctx context.Context, tenants []string) error { return r.agesOf(ctx, tenants, positions, ages) }
		if err := r.eachReadable(ctx, slice, make(map[string]error), read); err != nil {
			return nil, fmt.Errorf("read the ages of events of %d tenants from %q: %w",
				len(slice), slice[0], storeFault(err))
		}
	}
	return ages, nil
}

// agesOf reads the ages of the first events after the positions of these tenants.
func (r *eventReads) agesOf(ctx context.Context, tenants []string, positions map[string][]int64,
	ages map[engine.TenantPosition]engine.EventAge) error {
	statement, err := r.agesStatement(tenants, positions)
	if err != nil {
		return err
	}
	_, err = r.readEvents(ctx, statement, nil, nil, func(rows *pgconn.ResultReader) error {
		return wire.ReadInts(rows, func(row []int64) {
			tenant := tenants[row[0]]
			at := engine.TenantPosition{Tenant: tenant, Position: positions[tenant][row[1]-1]}
			ages[at] = engine.EventAge{At: time.UnixMicro(row[2]).UTC(), Age: time.Duration(row[3]) * time.Microsecond}
		})
	})
	return err
}

// agesStatement returns the statement that reads the ages of events of these tenants, by the places of the tenants and
// positions in their lists.
func (r *eventReads) agesStatement(tenants []string, positions map[string][]int64) (string, error) {
	parts := make([]string, len(tenants))
	for i, name := range tenants {
		t, err := r.named(name)
		if err != nil {
			return "", err
		}
		list := make([]string, len(positions[name]))
		for j, position := range positions[name] {
			list[j] = strconv.FormatInt(position, 10)
		}
		parts[i] = strings.NewReplacer("{n}", strconv.Itoa(i), "{positions}", "'{"+strings.Join(list, ",")+
			"}'").Replace(t.sql("next_events"))
	}
	return strings.Replace(r.control.sql("next_event_ages"), "{events}", strings.Join(parts, " union all "), 1), nil
}
