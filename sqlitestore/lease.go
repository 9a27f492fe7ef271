package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/internal/rename"
	"github.com/millrace-go/millrace/internal/versions"
)

// Ensure implements engine.Changes. Nearly always, all rows exist, and nothing is written.
func (s port) Ensure(ctx context.Context, projections []engine.NewProjection) (engine.LeftOut, error) {
	missing, left, err := s.withoutRows(ctx, s.readers, projections)
	if err != nil || len(missing) == 0 {
		return left, failed(err, "list new projections")
	}
	if missing, err = s.withoutUsed(ctx, missing, &left); err != nil || len(missing) == 0 {
		return left, err
	}
	err = s.transact(ctx, func(tx *sql.Tx) error { return insertProjections(ctx, tx, missing) })
	if err == nil {
		err = s.beginVersions(ctx, engine.LaterVersions(missing))
	}
	if err == nil && slices.ContainsFunc(missing, isRenamed) {
		// A node of an earlier release may have created them in the meantime, under their earlier names.
		_, again, err := s.withoutRows(ctx, s.readers, missing)
		left.Retired, left.Waiting = append(left.Retired, again.Retired...), append(left.Waiting, again.Waiting...)
		return left, failed(err, "list new projections")
	}
	return left, failed(err, "register projections")
}

// withoutUsed returns the projections whose earlier names are not registered by the owner of the file. The other projections
// wait. Their owner is a process of an earlier release that still runs them, and they can be renamed after it has ended. Renamed
// projections also wait while no owner has registered: it may be of the earlier release.
func (s port) withoutUsed(ctx context.Context, projections []engine.NewProjection, left *engine.LeftOut) (unused []engine.NewProjection, err error) {
	if !slices.ContainsFunc(projections, isRenamed) {
		return projections, nil
	}
	nodes, err := s.plane().Nodes(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range projections {
		if isRenamed(p) && (len(nodes) == 0 || rename.Used(nodes, p.Rename())) {
			left.Waiting = append(left.Waiting, p)
		} else {
			unused = append(unused, p)
		}
	}
	return unused, nil
}

func isRenamed(p engine.NewProjection) bool { return p.RenamedFrom != "" }

// insertProjections inserts the rows and leases of those projections that still have none.
func insertProjections(ctx context.Context, tx querier, missing []engine.NewProjection) error {
	last, err := number(ctx, tx, "last_projection")
	if err != nil {
		return err
	}
	rows, now := newRows(missing), time.Now().UnixMicro()
	if err := execute(ctx, tx, "insert_projections", rows); err != nil {
		return err
	}
	if later := engine.LaterVersions(missing); len(later) > 0 && len(later) < len(missing) {
		// The statement did not see the rows of earlier versions that it inserted.
		if err := execute(ctx, tx, "insert_projections", newRows(later)); err != nil {
			return err
		}
	}
	if err := execute(ctx, tx, "retire_earlier", rows, last, now); err != nil {
		return err
	}
	if err := execute(ctx, tx, "insert_leases", last, now); err != nil {
		return err
	}
	for _, p := range missing {
		if !p.BeginsLater() {
			continue
		}
		if err := setBegin(ctx, tx, p, last); err != nil {
			return err
		}
	}
	return nil
}

// setBegin sets where a projection begins that was inserted with ids above last. The head of the tenant is settled.
func setBegin(ctx context.Context, tx querier, p engine.NewProjection, last int64) error {
	var tenant, head int64
	var deleting bool
	found, err := runOne(ctx, tx, "tenant_head", []any{p.Tenant}, &tenant, &head, &deleting)
	if err != nil || !found {
		return err
	}
	at := head
	switch {
	case p.Start.Position > 0:
		at = min(p.Start.Position-1, head)
	case !p.Start.Time.IsZero():
		var first sql.NullInt64
		if _, err := runOne(ctx, tx, "first_since", []any{tenant, p.Start.Time.UnixMicro()}, &first); err != nil {
			return err
		}
		if first.Valid {
			at = first.Int64 - 1
		}
	}
	return execute(ctx, tx, "set_begin", tenant, p.Name, last, at)
}

// newRows returns the argument of insert_projections.sql. All partitions of a projection have one token.
func newRows(projections []engine.NewProjection) string {
	var rows [][]any
	for _, p := range projections {
		token := uuid.NewString()
		for _, n := range partition.Numbers(p.Partitions) {
			slots := partition.RangeOf(n, p.Partitions)
			rows = append(rows, []any{p.Tenant, p.Name, n, max(1, p.Partitions), slots.From, slots.To, token, versions.Earlier(p.ID()), p.RenamedFrom, p.Rename().To})
		}
	}
	return list(rows)
}

// withoutRows returns the projections that have no rows, and apart from them those that must not be created.
func (s *Store) withoutRows(ctx context.Context, q querier, projections []engine.NewProjection) (missing []engine.NewProjection, left engine.LeftOut, err error) {
	names := make([][]string, len(projections))
	for i, p := range projections {
		names[i] = []string{p.Tenant, p.Name, p.RenamedFrom, p.Rename().To}
	}
	var place int
	var reason engine.RetiredReason
	var successor string
	err = each(ctx, q, "missing_projections", []any{list(names)}, []any{&place, &reason, &successor}, func() error {
		if p := projections[place]; reason == "" {
			missing = append(missing, p)
		} else {
			left.Add(p, reason, successor)
		}
		return nil
	})
	return missing, left, err
}

// Free implements engine.Ownership. A node that does not own the file finds no leases. For the owner of the file, all
// leases of other nodes are free, since no other node is alive.
func (s port) Free(ctx context.Context, node engine.Node, _, unowned bool) (free []engine.LeaseRef, err error) {
	var l engine.LeaseRef
	err = each(ctx, s.readers, "free_leases", []any{node.ID, list(node.Projections), list(node.Tenants), unowned},
		[]any{&l.Row, &l.ID.Tenant, &l.ID.Name, &l.ID.Partition}, func() error {
			if node.Filters[l.ID.Name].Matches(l.ID.Tenant) {
				free = append(free, l)
			}
			return nil
		})
	return free, failed(err, "list free leases")
}

func (s port) Counts(ctx context.Context, tenants, names []string) (counts []engine.Want, err error) {
	var w engine.Want
	err = each(ctx, s.readers, "desired_counts", []any{list(tenants), list(names)}, []any{&w.Tenant, &w.Name, &w.Leases}, func() error {
		counts = append(counts, w)
		return nil
	})
	return counts, failed(err, "count leases")
}

// Claim implements engine.Ownership in one transaction. Batches of dead owners have ended with their processes, or are refused
// by the fence.
func (s port) Claim(ctx context.Context, node engine.Node, rows []int32, _ bool) (claimed []engine.Lease, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		ours, err := column[int32](ctx, tx, "claim", node.ID, list(rows))
		if err == nil && len(ours) > 0 {
			err = execute(ctx, tx, "set_delivers", list(ours), list(node.Delivers))
		}
		if err == nil && len(ours) > 0 {
			claimed, err = queryLeases(ctx, tx, ours, "")
		}
		return err
	})
	if err != nil {
		return nil, failed(err, "claim leases")
	}
	return claimed, nil
}

// AnnounceDrain implements engine.Ownership. No other node takes a share: a standby takes over when this node has ended.
func (s port) AnnounceDrain(ctx context.Context, node engine.Node) error {
	owner, err := s.livingOwner(ctx, s.readers)
	if err == nil && owner == node.ID {
		err = s.transact(ctx, func(tx *sql.Tx) error { return execute(ctx, tx, "set_draining", node.ID) })
	}
	return failed(err, "announce drain")
}

// Owned implements engine.Ownership. It includes the leases of a claim whose answer was lost.
func (s port) Owned(ctx context.Context, node engine.Node) ([]engine.Lease, error) {
	leases, err := queryLeases(ctx, s.readers, nil, node.ID)
	return leases, failed(err, "list owned leases")
}

func (s port) Leases(ctx context.Context, rows []int32) ([]engine.Lease, error) {
	leases, err := queryLeases(ctx, s.readers, rows, "")
	return leases, failed(err, "read %d leases", len(rows))
}

// queryLeases reads the leases of rows, and those that the node owner holds.
func queryLeases(ctx context.Context, q querier, rows []int32, owner string) (leases []engine.Lease, err error) {
	var l engine.Lease
	var passed string
	results := []any{&l.Row, &l.TenantRow, &l.ID.Tenant, &l.ID.Name, &l.ID.Partition, &l.Partitions, &l.Share.From, &l.Share.To, &passed, &l.Owner,
		&l.Epoch, &l.Checkpoint, &l.CrashCount, &l.Desired, &l.Attempts, &l.FailingPosition, &l.LastError, &l.Failed, &l.Halted, micros{&l.FailingSince},
		&l.CrashPosition, &l.CrashAttempts, &l.Parked, &l.ParkedStreams, &l.HasCommands}
	err = each(ctx, q, "leases", []any{list(rows), owner}, results, func() (err error) {
		read := l
		if read.Share.Passed, err = passedFrom(passed); err != nil {
			return fmt.Errorf("lease of %s: %w", l.ID, err)
		}
		read.Share, read.Incarnation = read.Share.After(read.Checkpoint), incarnation
		leases = append(leases, read)
		return nil
	})
	return leases, err
}

// Release implements engine.Ownership in one transaction. All advances have one owner.
func (s port) Release(ctx context.Context, advances []engine.Advance) error {
	if len(advances) == 0 {
		return nil
	}
	owner := advances[0].Lease.Owner
	var attempts, replays [][]int64
	for _, a := range advances {
		if a.Begun.Attempt > 0 {
			attempts = append(attempts, []int64{int64(a.Lease.Row), a.Lease.Epoch, a.Begun.Position, int64(a.Begun.Attempt)})
		}
		if a.Replaying != 0 {
			replays = append(replays, []int64{int64(a.Lease.Row), a.Lease.Epoch, a.Replaying})
		}
	}
	err := s.transact(ctx, func(tx *sql.Tx) error {
		if err := executeEach(ctx, tx, "release_attempts", attempts, owner); err != nil {
			return err
		}
		if err := executeEach(ctx, tx, "release_replays", replays, owner); err != nil {
			return err
		}
		released, err := runOne(ctx, tx, "release", []any{moves(advances), owner, time.Now().UnixMicro()})
		if err == nil && released {
			err = s.announce(ctx, tx, engine.Notice{Control: true})
		}
		return err
	})
	return failed(err, "release leases")
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
func (s port) Advance(ctx context.Context, advances []engine.Advance) (map[int32]bool, error) {
	moved := make(map[int32]bool, len(advances))
	if len(advances) == 0 {
		return moved, nil
	}
	err := s.transact(ctx, func(tx *sql.Tx) error {
		rows, err := column[int32](ctx, tx, "advance_many", moves(advances), advances[0].Lease.Owner)
		for _, row := range rows {
			moved[row] = true
		}
		return err
	})
	if err != nil {
		return nil, failed(err, "advance checkpoints") // its rows came before the commit that failed
	}
	return moved, nil
}
