package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/pgstore/internal/settle"
	"github.com/millrace-go/millrace/pgstore/internal/wire"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// settlePatience is how long new projections wait for open appends before they begin at the last event. If an append
// stays open for longer, they begin below its position.
const settlePatience = time.Second

// Begins implements store.Control.
func (s port) Begins(ctx context.Context, projections []engine.NewProjection) (b store.Begins, err error) {
	var tenants []string
	for _, p := range projections {
		if p.BeginsLater() {
			tenants = append(tenants, p.Tenant)
		}
	}
	if len(tenants) == 0 {
		return b, nil
	}
	rows, err := s.Tenants(ctx, tenants)
	if err != nil {
		return b, err
	}
	ids := make(map[string]int32, len(rows))
	tenants = tenants[:0]
	for _, t := range rows {
		ids[t.Name] = t.Row
		if t.State == tenancy.Active || t.State == tenancy.Paused {
			tenants = append(tenants, t.Name)
		}
	}
	marks, in, err := s.settledMarks(ctx, tenants)
	if err != nil {
		return b, err
	}
	b = store.Begins{At: make(map[projection.ID]store.Begin), In: in}
	for _, p := range projections {
		mark, settled := marks[p.Tenant]
		if !p.BeginsLater() || !settled {
			continue
		}
		at, err := s.beginsAt(ctx, p, mark, in)
		if err != nil {
			return b, err
		}
		b.At[p.ID()] = store.Begin{Checkpoint: at, Tenant: ids[p.Tenant]}
	}
	return b, nil
}

// beginsAt returns the checkpoint with which a new projection begins.
func (s port) beginsAt(ctx context.Context, p engine.NewProjection, mark int64, in engine.Incarnation) (int64, error) {
	switch {
	case p.Start.End || mark == 0:
		return mark, nil
	case p.Start.Time.IsZero():
		return min(p.Start.Position-1, mark), nil
	}
	t, err := s.ForTenant(p.Tenant)
	if err != nil {
		return 0, err
	}
	at := mark
	args := [][]byte{[]byte(p.Start.Time.UTC().Format(time.RFC3339Nano)), []byte(fmt.Sprint(mark))}
	now, err := t.readEvents(ctx, t.sql("first_since"), args, nil, func(rows *pgconn.ResultReader) error {
		return wire.ReadInts(rows, func(row []int64) { at = row[0] - 1 })
	})
	if err == nil && now != in {
		err = event.ErrIncarnationChanged
	}
	if err != nil {
		return 0, fmt.Errorf("find the first event of tenant %q since %v: %w",
			p.Tenant, p.Start.Time, storeFault(t.absent(ctx, err)))
	}
	return at, nil
}

// settledMarks returns positions of tenants at or below which no event can still appear, as high as open appends allow.
func (s port) settledMarks(ctx context.Context, tenants []string) (map[string]int64, engine.Incarnation, error) {
	heads, err := s.Heads(ctx, tenants)
	if err != nil {
		return nil, heads.Incarnation, err
	}
	for tenant, failed := range heads.Failed {
		return nil, heads.Incarnation, fmt.Errorf("read the head of tenant %q: %w", tenant, failed)
	}
	if len(heads.Positions) == 0 {
		return nil, heads.Incarnation, nil
	}
	marks, settlers := make(map[string]int64, len(tenants)), make(map[string]*settle.Settler)
	for tenant, head := range heads.Positions {
		settler := settle.New(0, head, time.Now())
		marks[tenant], settlers[tenant] = 0, &settler
	}
	waiting, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	err = backoff.Poll(waiting, scanInterval, scanInterval, func() (done bool, err error) {
		return s.scanAll(ctx, settlers, marks, heads.Incarnation)
	})
	if err != nil && (ctx.Err() != nil || !errors.Is(err, waiting.Err())) {
		return nil, 0, err
	}
	for tenant := range settlers {
		marks[tenant], err = s.belowOpenAppends(ctx, tenant, heads)
		if err != nil {
			return nil, 0, err
		}
	}
	return marks, heads.Incarnation, nil
}

// scanAll scans the locks on the events of the tenants that are not settled. It moves those that are settled to marks.
func (s port) scanAll(ctx context.Context, settlers map[string]*settle.Settler, marks map[string]int64,
	in engine.Incarnation) (done bool, err error) {
	schemas := make([]string, 0, len(settlers))
	bySchema := make(map[string]string, len(settlers))
	for tenant, settler := range settlers {
		if !settler.Waiting() { // it has no events
			delete(settlers, tenant)
			continue
		}
		t, err := s.ForTenant(tenant)
		if err != nil {
			return false, err
		}
		schemas, bySchema[tenant] = append(schemas, t.schema), t.schema
	}
	if len(settlers) == 0 {
		return true, nil
	}
	holders, now, err := s.locks.scan(ctx, schemas...)
	switch {
	case err != nil:
		return false, err
	case now != in:
		return false, event.ErrIncarnationChanged
	}
	for tenant, settler := range settlers {
		settler.Scan(holders[bySchema[tenant]])
		if !settler.Waiting() {
			marks[tenant] = settler.Mark()
			delete(settlers, tenant)
		}
	}
	return len(settlers) == 0, nil
}

// belowOpenAppends returns the position up to which the events of a tenant have no gap, from the highest checkpoint on.
// An append that is open can only fill a gap.
func (s port) belowOpenAppends(ctx context.Context, tenant string, heads engine.Heads) (mark int64, err error) {
	t, err := s.ForTenant(tenant)
	if err != nil {
		return 0, err
	}
	args := [][]byte{[]byte(tenant), []byte(fmt.Sprint(heads.Positions[tenant]))}
	in, err := t.readEvents(ctx, t.sql("end_without_gap"), args, nil, func(rows *pgconn.ResultReader) error {
		return wire.ReadInts(rows, func(row []int64) { mark = row[0] })
	})
	if err == nil && in != heads.Incarnation {
		err = event.ErrIncarnationChanged
	}
	if err != nil {
		return 0, fmt.Errorf("find the first gap of tenant %q: %w", tenant, storeFault(t.absent(ctx, err)))
	}
	return mark, nil
}
