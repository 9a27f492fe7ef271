package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// leases implements engine.Ownership: it registers nodes, and finds, claims and releases leases.
type leases struct{ *database }

var _ engine.Ownership = leases{}

// Free implements engine.Ownership. A node that does not own the file finds no leases. For the owner of the file, all
// leases of other nodes are free, since no other node is alive.
func (l leases) Free(ctx context.Context, node engine.Node, _, unowned bool) (free []engine.LeaseRef, err error) {
	var ref engine.LeaseRef
	err = each(ctx, l.readers, "free_leases", []any{node.ID, list(node.Projections), list(node.Tenants), unowned},
		[]any{&ref.Row, &ref.ID.Tenant, &ref.ID.Name, &ref.ID.Partition}, func() error {
			if node.Filters[ref.ID.Name].Matches(ref.ID.Tenant) {
				free = append(free, ref)
			}
			return nil
		})
	return free, wrap(err, "list free leases")
}

func (l leases) Counts(ctx context.Context, tenants, names []string) (counts []engine.Want, err error) {
	var w engine.Want
	err = each(ctx, l.readers, "desired_counts", []any{list(tenants), list(names)},
		[]any{&w.Tenant, &w.Name, &w.Leases}, func() error {
			counts = append(counts, w)
			return nil
		})
	return counts, wrap(err, "count leases")
}

// Claim implements engine.Ownership in one transaction. Batches of dead owners have ended with their processes, or are
// refused by the fence.
func (l leases) Claim(ctx context.Context, node engine.Node, rows []int32, _ bool) (claimed []engine.Lease, err error) {
	err = l.transact(ctx, func(tx *sql.Tx) error {
		ours, err := column[int32](ctx, tx, "claim", node.ID, list(rows))
		if err != nil || len(ours) == 0 {
			return err
		}
		if err := execute(ctx, tx, "set_delivers", list(ours), list(node.Delivers)); err != nil {
			return err
		}
		claimed, err = queryLeases(ctx, tx, ours, "")
		return err
	})
	if err != nil {
		return nil, wrap(err, "claim leases")
	}
	return claimed, nil
}

// AnnounceDrain implements engine.Ownership. No other node takes a share: a standby takes over when this node has
// ended.
func (l leases) AnnounceDrain(ctx context.Context, node engine.Node) error {
	owner, _, err := l.lastOwner(ctx, l.readers)
	if err == nil && owner == node.ID {
		err = l.transact(ctx, func(tx *sql.Tx) error { return execute(ctx, tx, "set_draining", node.ID) })
	}
	return wrap(err, "announce drain")
}

// Owned implements engine.Ownership. It includes the leases of a claim whose answer was lost.
func (l leases) Owned(ctx context.Context, node engine.Node) ([]engine.Lease, error) {
	leases, err := queryLeases(ctx, l.readers, nil, node.ID)
	return leases, wrap(err, "list owned leases")
}

func (l leases) Leases(ctx context.Context, rows []int32) ([]engine.Lease, error) {
	leases, err := queryLeases(ctx, l.readers, rows, "")
	return leases, wrap(err, "read %d leases", len(rows))
}

// queryLeases reads the leases of rows, and those that the node owner holds.
func queryLeases(ctx context.Context, q querier, rows []int32, owner string) (leases []engine.Lease, err error) {
	var l engine.Lease
	var passed string
	results := []any{&l.Row, &l.TenantRow, &l.ID.Tenant, &l.ID.Name, &l.ID.Partition, &l.Partitions, &l.Share.From,
		&l.Share.To, &passed, &l.Owner,
		&l.Epoch, &l.Checkpoint, &l.CrashCount, &l.Desired, &l.Attempts, &l.FailingPosition, &l.Failed,
		&l.Halted, micros{&l.FailingSince},
		&l.CrashPosition, &l.CrashAttempts, &l.Parked, &l.ParkedStreams, &l.HasCommands}
	err = each(ctx, q, "leases", []any{list(rows), owner}, results, func() (err error) {
		read := l
		read.Share.Passed, err = passedFrom(passed)
		if err != nil {
			return fmt.Errorf("lease of %s: %w", l.ID, err)
		}
		read.Share, read.Incarnation = read.Share.After(read.Checkpoint), incarnation
		leases = append(leases, read)
		return nil
	})
	return leases, err
}

// Release implements engine.Ownership in one transaction. All advances have one owner.
func (l leases) Release(ctx context.Context, advances []engine.Advance) error {
	if len(advances) == 0 {
		return nil
	}
	owner := advances[0].Lease.Owner
	var attempts, replays [][]int64
	for _, a := range advances {
		if a.Begun.Attempt > 0 {
			attempts = append(attempts, []int64{int64(a.Lease.Row),
				a.Lease.Epoch, a.Begun.Position, int64(a.Begun.Attempt)})
		}
		if a.Replaying != 0 {
			replays = append(replays, []int64{int64(a.Lease.Row), a.Lease.Epoch, a.Replaying})
		}
	}
	err := l.transact(ctx, func(tx *sql.Tx) error {
		if err := executeEach(ctx, tx, "release_attempts", attempts, owner); err != nil {
			return err
		}
		if err := executeEach(ctx, tx, "release_replays", replays, owner); err != nil {
			return err
		}
		released, err := runOne(ctx, tx, "release", []any{moves(advances), owner, time.Now().UnixMicro()})
		if err != nil || !released {
			return err
		}
		return l.announce(ctx, tx, engine.Notice{Control: true})
	})
	return wrap(err, "release leases")
}

// executeEach executes a statement whose first argument is a JSON array with rows, if there are any.
func executeEach(ctx context.Context, q querier, statement string, rows [][]int64, args ...any) error {
	if len(rows) == 0 {
		return nil
	}
	return execute(ctx, q, statement, slices.Insert(args, 0, any(list(rows)))...)
}

// moves returns the first argument of release.sql and advance_many.sql.
func moves(advances []engine.Advance) string {
	rows := make([][]int64, len(advances))
	for i, a := range advances {
		rows[i] = []int64{int64(a.Lease.Row), a.Lease.Epoch, a.Lease.Checkpoint, a.To}
	}
	return list(rows)
}

// Advance implements engine.Ownership in one statement. All advances have one owner.
func (l leases) Advance(ctx context.Context, advances []engine.Advance) (map[int32]bool, error) {
	moved := make(map[int32]bool, len(advances))
	if len(advances) == 0 {
		return moved, nil
	}
	err := l.transact(ctx, func(tx *sql.Tx) error {
		rows, err := column[int32](ctx, tx, "advance_many", moves(advances), advances[0].Lease.Owner)
		for _, row := range rows {
			moved[row] = true
		}
		return err
	})
	if err != nil {
		return nil, wrap(err, "advance checkpoints") // its rows came before the commit that failed
	}
	return moved, nil
}

func (l leases) Orders(ctx context.Context, node engine.Node, rows []int32) (map[int32]engine.Orders, error) {
	owner := ""
	if rows == nil {
		owner = node.ID
	}
	states := make(map[int32]engine.Orders)
	var row int32
	var state engine.Orders
	err := each(ctx, l.readers, "orders", []any{list(rows), owner}, []any{&row, &state.Desired, &state.HasCommands},
		func() error {
			states[row] = state
			return nil
		})
	return states, wrap(err, "read desired states")
}
