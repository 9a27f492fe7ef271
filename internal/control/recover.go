package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/resplit"
	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/projection"
)

// Restored returns the partitions of a tenant's projections, by name, and the tables in the tenant's schema that are
// not the store's.
func (p Operations) Restored(ctx context.Context, tenant string) (found []engine.RestoredPartition,
	tables []string, err error) {
	err = p.db.View(ctx, func(v store.View) (err error) {
		found, err = restoredPartitions(v, tenant)
		if err != nil {
			return err
		}
		tables, err = column[string](v, "tenant_tables", tenant)
		return err
	})
	return found, tables, p.wrap(err, "read the projections of tenant %q", tenant)
}

// ParkedAbove counts the parked events of partitions above a position.
func (p Operations) ParkedAbove(ctx context.Context, rows []int32, position int64) (parked int64, err error) {
	err = p.db.View(ctx, func(v store.View) error {
		_, err := v.One("count_parked_above", []any{rows, position}, &parked)
		return err
	})
	return parked, p.wrap(err, "count parked events above %d", position)
}

func restoredPartitions(v store.View, tenant string) (found []engine.RestoredPartition, err error) {
	var r engine.RestoredPartition
	row := []any{&r.Row, &r.Name, &r.Delivers, &r.Paused, &r.Owned, &r.Halted, &r.Reason, &r.Checkpoint, &r.Highest}
	err = v.Each("restored_partitions", []any{tenant}, row, func() error {
		found = append(found, r)
		return nil
	})
	return found, err
}

// Recover lets all projections of a restored tenant continue, each as its action says, in one transaction: while one of
// them has a checkpoint above the last event, no event of the tenant is read. It returns what was done, by name. It
// returns projection.ErrRunning if a projection runs, unless that continues and has handled no event above the end. Its
// locks are those of Reset, for all projections of the tenant.
func (p Operations) Recover(ctx context.Context, r engine.Recover) (done []engine.Recovered, err error) {
	err = p.change(ctx, r.Tenant, func(tx store.Tx) error {
		if r.Incarnation != 0 {
			tx.Exec("check_incarnation", int64(r.Incarnation))
		}
		found, err := restoredPartitions(tx, r.Tenant)
		if err != nil {
			return err
		}
		done, err = planRecovery(r, found)
		if err != nil {
			return err
		}
		all, err := lockPartitions(tx, r.Tenant, plannedNames(done)...)
		for i := 0; i < len(done) && err == nil; i++ {
			d := &done[i]
			err = recovery{tx, r, all.named(d.Name), partitionsOf(found, d.Name)}.recover(d)
			if err != nil {
				err = fmt.Errorf("%s: %w", excerpt.Quoted(d.Name), err)
			}
		}
		return err
	})
	return done, p.wrap(err, "recover tenant %q", r.Tenant)
}

// planRecovery returns what the recovery does with each projection.
func planRecovery(r engine.Recover, found []engine.RestoredPartition) (plan []engine.Recovered, err error) {
	actions := maps.Clone(r.Actions)
	var unnamed []string
	for _, f := range found {
		action, named := actions[f.Name]
		switch {
		case len(plan) > 0 && plan[len(plan)-1].Name == f.Name:
			continue // another partition of it
		case !named && !f.Delivers:
			unnamed = append(unnamed, excerpt.Quoted(f.Name))
		case !named:
			action.Kind = engine.RecoverContinue
		case action.Kind == engine.RecoverReset && (action.Position < 0 || action.Position > r.End):
			return nil, fmt.Errorf("%s: the position must be from 0 to the last restored event, %d: %d",
				excerpt.Quoted(f.Name), r.End, action.Position)
		}
		plan = append(plan, engine.Recovered{Name: f.Name, Action: action})
	}
	for _, d := range plan {
		delete(actions, d.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(actions)) {
		return nil, fmt.Errorf("%w %s", projection.ErrUnknownProjection, excerpt.Quoted(name))
	}
	if len(unnamed) > 0 {
		return nil, fmt.Errorf("these projections must continue, be reset or be rebuilt too: %s",
			strings.Join(unnamed, ", "))
	}
	return plan, nil
}

func plannedNames(done []engine.Recovered) []string {
	names := make([]string, len(done))
	for i, d := range done {
		names[i] = d.Name
	}
	return names
}

func partitionsOf(found []engine.RestoredPartition, name string) []engine.RestoredPartition {
	return slices.DeleteFunc(slices.Clone(found), func(f engine.RestoredPartition) bool { return f.Name != name })
}

// named returns the partitions of one of several projections.
func (all partitions) named(name string) partitions {
	return slices.DeleteFunc(slices.Clone(all), func(l locked) bool { return l.name != name })
}

// recovery is the recovery of one projection, whose partitions are locked. found are these before.
type recovery struct {
	tx store.Tx
	engine.Recover
	own   partitions
	found []engine.RestoredPartition
}

// recover does what d says, and completes d.
func (r recovery) recover(d *engine.Recovered) error {
	id := projection.ID{Tenant: r.Tenant, Name: d.Name}
	d.From, d.Position = r.own.lowest(), r.own.lowest()
	switch left, err := r.leaves(d.Action); {
	case err != nil || left:
		return err
	case d.Action.Kind != engine.RecoverContinue && r.own.deliver() && !r.Redeliver:
		return projection.ErrDelivers
	}
	if err := r.own.noOperation(r.tx, id); err != nil {
		return err
	}
	rows := r.own.rows()
	r.tx.Later("count_parked_above", []any{rows, r.End}, &d.Removed)
	r.tx.Exec("delete_dead_letters_above", rows, r.End)
	if d.Action.Kind == engine.RecoverReset {
		err := r.own.reset(r.tx, r.Tenant, d.Action.Position, &d.Reset)
		d.Position, d.Epoch = d.Reset.Position, d.Reset.Epoch
		return err
	}
	d.Position, d.Epoch = min(d.From, r.End), r.own.lower(r.tx, r.Tenant, r.End, d.Action.Kind)
	if d.Action.Kind != engine.RecoverRebuild {
		return nil
	}
	o, err := engine.NewOperation{ID: id, Kind: engine.OperationRebuild, Holds: []string{d.Name},
		By: d.Action.By}.Encode(engine.RebuildOptions{Redeliver: r.Redeliver})
	if err != nil {
		return err
	}
	d.Operation, err = insertOperation(r.tx, o)
	return err
}

// leaves reports whether the projection is left as it is: it runs, and continues. It returns projection.ErrRunning for
// any other projection that runs.
func (r recovery) leaves(a engine.RecoverAction) (left bool, err error) {
	running := func(l locked) bool { return !l.Halted && l.Owner == resplit.LivingOwner }
	above := func(f engine.RestoredPartition) bool { return f.Highest > r.End }
	switch {
	case r.found[0].Paused || !slices.ContainsFunc(r.own, running):
		return false, nil
	case a.Kind == engine.RecoverContinue && !slices.ContainsFunc(r.found, above):
		return true, nil
	}
	return false, projection.ErrRunning
}

// notRebuilt is the reason of a projection whose rebuild after a restore was requested, and has not happened yet.
const notRebuilt = "the tenant was restored, and the projection is not rebuilt yet: rebuild it"

// lower lets the checkpoints be at most end, the position of the last restored event. The dead letters above it are
// deleted. A projection that will be rebuilt stays stopped. It returns the new epoch.
func (all partitions) lower(tx store.Tx, tenant string, end int64, kind engine.RecoverKind) (epoch int64) {
	var stopped any
	if kind == engine.RecoverRebuild {
		stopped = notRebuilt
	}
	rows := all.rows()
	return all.taken(tx, tenant, func(epoch int64) {
		tx.Exec("lower_projections", rows, end, stopped)
		tx.Exec("lower_leases", rows, end, epoch)
	})
}

// deliver reports whether a partition delivers.
func (all partitions) deliver() bool {
	return slices.ContainsFunc(all, func(l locked) bool { return l.delivers })
}

// lowest returns the lowest checkpoint.
func (all partitions) lowest() int64 {
	return slices.MinFunc(all, func(a, b locked) int { return cmp.Compare(a.Checkpoint, b.Checkpoint) }).Checkpoint
}
