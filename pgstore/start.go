package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/pgstore/internal/settle"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// settlePatience is how long new projections wait for open appends before they begin at the last event. If an append
// stays open for longer, they begin below its position.
const settlePatience = time.Second

// Begins implements store.Control.
func (r *eventReads) Begins(ctx context.Context, projections []engine.NewProjection) (b store.Begins, err error) {
	var tenants []string
	for _, p := range projections {
		if p.BeginsLater() {
			tenants = append(tenants, p.Tenant)
		}
	}
	if len(tenants) == 0 {
		return b, nil
	}
	rows, err := r.readTenants(ctx, ownMigrations, tenants)
	if err != nil {
		return b, wrap(err, "list tenants")
	}
	ids := make(map[string]int32, len(rows))
	tenants = tenants[:0]
	for _, t := range rows {
		ids[t.Name] = t.Row
		if t.State == tenancy.Active || t.State == tenancy.Paused {
			tenants = append(tenants, t.Name)
		}
	}
	marks, in, err := r.settledMarks(ctx, tenants)
	if err != nil {
		return b, err
	}
	b = store.Begins{At: make(map[projection.ID]store.Begin), In: in}
	for _, p := range projections {
		mark, settled := marks[p.Tenant]
		if !p.BeginsLater() || !settled {
			continue
		}
		at, err := r.beginsAt(ctx, p, mark, in)
		if err != nil {
			return b, err
		}
		b.At[p.ID()] = store.Begin{Checkpoint: at, Tenant: ids[p.Tenant]}
	}
	return b, nil
}

// beginsAt returns the checkpoint with which a new projection begins.
func (r *eventReads) beginsAt(ctx context.Context, p engine.NewProjection, mark int64,
	in engine.Incarnation) (int64, error) {
	switch {
	case p.Start.End || mark == 0:
		return mark, nil
	case p.Start.Time.IsZero():
		return min(p.Start.Position-1, mark), nil
	}
	t, err := r.named(p.Tenant)
	if err != nil {
		return 0, err
	}
	at := mark
	args := [][]byte{[]byte(p.Start.Time.UTC().Format(time.RFC3339Nano)), []byte(fmt.Sprint(mark))}
	err = r.readNumbers(ctx, t, in, "first_since", args, func(row []int64) { at = row[0] - 1 })
	if err != nil {
		return 0, fmt.Errorf("find the first event of tenant %q since %v: %w",
			p.Tenant, p.Start.Time, storeFault(t.absent(ctx, err)))
	}
	return at, nil
}

// settledMarks returns positions of tenants at or below which no event can still appear, as high as open appends allow.
func (r *eventReads) settledMarks(ctx context.Context, tenants []string) (map[string]int64, engine.Incarnation, error) {
	heads, err := r.Heads(ctx, tenants)
	if err != nil {
		return nil, heads.Incarnation, err
	}
	for tenant, failed := range heads.Failed {
		return nil, heads.Incarnation, fmt.Errorf("read the head of tenant %q: %w", tenant, failed)
	}
	if len(heads.Positions) == 0 {
		return nil, heads.Incarnation, nil
	}
	marks, settlers := make(map[string]int64, len(tenants)), make(map[namedTenant]*settle.Settler)
	for tenant, head := range heads.Positions {
		marks[tenant] = 0
		t, err := r.named(tenant)
		if err != nil {
			return nil, 0, err
		}
		if settler := settle.New(0, head, time.Now()); settler.Waiting() {
			settlers[t] = &settler
		}
	}
	waiting, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	err = backoff.Poll(waiting, scanInterval, scanInterval, func() (done bool, err error) {
		if len(settlers) > 0 {
			settled, failed := r.scanFor(ctx, settlers, heads.Incarnation)
			maps.Copy(marks, settled)
			err = failed
		}
		return len(settlers) == 0, err
	})
	if err != nil && (ctx.Err() != nil || !errors.Is(err, waiting.Err())) {
		return nil, 0, err
	}
	for t := range settlers {
		marks[t.name], err = r.belowOpenAppends(ctx, t, heads)
		if err != nil {
			return nil, 0, err
		}
	}
	return marks, heads.Incarnation, nil
}

// belowOpenAppends returns the position up to which the events of a tenant have no gap, from the highest checkpoint on.
// An append that is open can only fill a gap.
func (r *eventReads) belowOpenAppends(ctx context.Context, t namedTenant, heads engine.Heads) (mark int64, err error) {
	args := [][]byte{[]byte(t.name), []byte(fmt.Sprint(heads.Positions[t.name]))}
	err = r.readNumbers(ctx, t, heads.Incarnation, "end_without_gap", args, func(row []int64) { mark = row[0] })
	if err != nil {
		return 0, fmt.Errorf("find the first gap of tenant %q: %w", t.name, storeFault(t.absent(ctx, err)))
	}
	return mark, nil
}
