package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Reset implements engine.Store in one transaction, which waits for the transaction in progress.
func (s port) Reset(ctx context.Context, r engine.Reset) (result engine.ResetResult, err error) {
	r.ID = engine.FullID(r.ID)
	if err = s.ready(ctx); err == nil {
		err = s.transact(ctx, func(tx *sql.Tx) error {
			p, err := s.allPartitions(ctx, tx, r)
			if err == nil {
				result, err = p.reset(ctx, r.Position)
			}
			return err
		})
	}
	return result, failed(err, "reset %s to %d", r.ID, r.Position)
}

func (s port) Delivers(ctx context.Context, id projection.ID) (delivers bool, err error) {
	id = engine.FullID(id)
	if err = s.ready(ctx); err == nil {
		_, err = runOne(ctx, s.readers, "delivers", []any{id.Tenant, id.Name}, &delivers)
	}
	return delivers, failed(err, "find out whether %s delivers", id)
}

// allPartitions returns the partitions of a projection for a reset.
func (s *Store) allPartitions(ctx context.Context, tx *sql.Tx, r engine.Reset) (*partitionSet, error) {
	t, err := lookUpTenant(ctx, tx, r.ID.Tenant)
	if err == nil && t.state == projection.TenantDropping {
		err = projection.ErrTenantDropping
	}
	if err != nil {
		return nil, err
	}
	alive, err := s.livingOwner(ctx, tx)
	if err != nil {
		return nil, err
	}
	set := &partitionSet{store: s, tx: tx, id: r.ID}
	var row int32
	var checkpoint, epoch, heldBy, operation int64
	var owner string
	var delivers, delivering bool
	err = each(ctx, tx, "all_partitions", []any{r.ID.Tenant, r.ID.Name}, []any{&row, &checkpoint, &epoch, &owner, &delivers, &heldBy}, func() error {
		set.Add(row, checkpoint, epoch)
		if owner != "" && owner == alive {
			set.living = append(set.living, row)
		}
		delivering, operation = delivering || delivers, max(operation, heldBy)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(set.Rows) == 0:
		return nil, cmp.Or(unknownProjection(ctx, tx, r.ID), projection.ErrUnknownProjection)
	case delivering && !r.Redeliver:
		return nil, projection.ErrDelivers
	case operation == 0:
		return set, control.AlreadyOpen(s.on(ctx, tx), r.ID)
	}
	open, err := control.ReadOperation(s.on(ctx, tx), "operation", operation)
	if err == nil {
		err = engine.AlreadyOpen(open)
	}
	return nil, err
}

// stillPartitions returns the partitions of an operation's own projection. It returns engine.ErrNotStill unless the operation
// holds all of its projections and none has an owner. Nothing else writes during the transaction.
func (s *Store) stillPartitions(ctx context.Context, tx *sql.Tx, o engine.Operation) (*partitionSet, error) {
	if err := control.Active(s.on(ctx, tx), o.ID.Tenant); err != nil {
		return nil, err
	}
	set := &partitionSet{store: s, tx: tx, id: o.ID}
	var row int32
	var name string
	var checkpoint, epoch int64
	var isStill bool
	still := true
	err := each(ctx, tx, "held_partitions", []any{o.ID.Tenant, list(o.Holds), o.Number}, []any{&row, &name, &checkpoint, &epoch, &isStill}, func() error {
		if still = still && isStill; name == o.ID.Name {
			set.Add(row, checkpoint, epoch)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(set.Rows) == 0:
		return nil, projection.ErrUnknownProjection
	case !still:
		return nil, engine.ErrNotStill
	}
	return set, nil
}

// partitionSet are all partitions of a projection, in a transaction.
type partitionSet struct {
	store *Store
	tx    *sql.Tx
	id    projection.ID
	engine.PartitionRows
	// living are those with a living owner.
	living []int32
}

// reset sets the checkpoints to a position. What the projection knows about events above it is forgotten, and their dead
// letters are resolved.
func (p *partitionSet) reset(ctx context.Context, position int64) (result engine.ResetResult, err error) {
	result = p.ResultAt(position)
	if position < p.Highest {
		if _, err := runOne(ctx, p.tx, "heads", []any{list([]string{p.id.Tenant})}, new(string), &result.Head); err != nil {
			return result, err
		}
	}
	now := time.Now().UnixMicro()
	for _, row := range p.Rows {
		n, err := p.resolve(ctx, row, position, now)
		if err != nil {
			return result, err
		}
		result.Resolved += n
	}
	if err := execute(ctx, p.tx, "end_living_replays", list(p.living)); err != nil {
		return result, err
	}
	if err := execute(ctx, p.tx, "reset_projections", list(p.Rows), position, result.Head, now); err != nil {
		return result, err
	}
	if err := execute(ctx, p.tx, "reset_leases", list(p.Rows), position, now, result.Epoch); err != nil {
		return result, err
	}
	return result, p.store.announce(ctx, p.tx, engine.Notice{Control: true, Tenant: p.id.Tenant})
}

// resolve resolves the dead letters of a partition above a position, and returns their number. Streams without other parked
// events continue.
func (p *partitionSet) resolve(ctx context.Context, row int32, position, now int64) (resolved int64, err error) {
	streams, err := column[string](ctx, p.tx, "reset_dead_letters", row, position, now)
	if err != nil || len(streams) == 0 {
		return 0, err
	}
	resolved = int64(len(streams))
	slices.Sort(streams)
	if err := execute(ctx, p.tx, "release_streams", row, list(slices.Compact(streams))); err != nil {
		return 0, err
	}
	return resolved, execute(ctx, p.tx, "count_unparked", row, resolved, 0)
}

// rebuild makes the changes of a rebuild, after the hook.
func (p *partitionSet) rebuild(ctx context.Context) error {
	_, err := p.reset(ctx, 0)
	return err
}
