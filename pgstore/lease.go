package pgstore

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/partition"
)

// leases implements engine.Ownership: it registers nodes, and finds, claims and releases leases.
type leases struct{ *database }

var _ engine.Ownership = leases{}

func (l leases) Free(ctx context.Context, node engine.Node, trustHeartbeats, unowned bool) ([]engine.LeaseRef, error) {
	free, err := queryPlanned(ctx, l.database, skipping, func(row pgx.CollectableRow) (ref engine.LeaseRef, _ error) {
		return ref, row.Scan(&ref.Row, &ref.ID.Tenant, &ref.ID.Name, &ref.ID.Partition)
	}, "free_leases", node.Projections, nonNil(node.Tenants), trustHeartbeats, unowned)
	free = slices.DeleteFunc(free,
		func(ref engine.LeaseRef) bool { return !node.Filters[ref.ID.Name].Matches(ref.ID.Tenant) })
	return free, wrap(err, "list free leases")
}

// nonNil returns items, or an empty slice if it is nil, which would be null.
func nonNil(items []string) []string {
	if items == nil {
		return []string{}
	}
	return items
}

func (l leases) Counts(ctx context.Context, tenants, names []string) ([]engine.Want, error) {
	counts, err := queryPlanned(ctx, l.database, uncompiled, func(row pgx.CollectableRow) (w engine.Want, err error) {
		return w, row.Scan(&w.Tenant, &w.Name, &w.Leases)
	}, "desired_counts", tenants, names)
	return counts, wrap(err, "count leases")
}

// Claim implements engine.Ownership. It commits synchronously and skips rows that another transaction has locked. Then
// it ends the sessions in which batches of dead owners still run: they could not commit, but may hold locks on read
// models. Without the right to do so, their time-outs end them.
func (l leases) Claim(ctx context.Context, node engine.Node, rows []int32,
	trustHeartbeats bool) ([]engine.Lease, error) {
	claim, err := l.claim(ctx, node, rows, trustHeartbeats)
	if err == nil && len(claim.taken) > 0 {
		l.endZombieBatches(ctx, l.pool, claim.taken, claim.began)
	}
	return claim.leases, err
}

// claim is the result of a claim. taken are the rows of leases of dead owners. began is when it began, by the server's
// clock.
type claim struct {
	leases []engine.Lease
	taken  []int64
	began  time.Time
}

func (l leases) claim(ctx context.Context, node engine.Node, rows []int32,
	trustHeartbeats bool) (got claim, err error) {
	err = l.inIncarnation(ctx, func() error {
		fn := func(tx pgx.Tx) (err error) {
			got = claim{}
			claimed, _ := tx.Query(ctx, l.control.sql("claim"), node.ID, rows, trustHeartbeats, nonNil(node.Delivers))
			var row int32
			var dead bool
			var ours []int32
			_, err = pgx.ForEachRow(claimed, []any{&row, &dead, &got.began}, func() error {
				ours = append(ours, row)
				if dead {
					got.taken = append(got.taken, int64(row))
				}
				return nil
			})
			if err != nil || len(ours) == 0 {
				return err
			}
			got.leases, err = l.queryLeases(ctx, tx, "leases", ours)
			return err
		}
		err := l.repeatably(ctx, func(conn *pgx.Conn) error { return pgx.BeginTxFunc(ctx, conn, l.beginDurable(), fn) })
		return wrap(err, "claim leases")
	})
	return got, err
}

func (l leases) AnnounceDrain(ctx context.Context, node engine.Node) error {
	_, err := l.pool.Exec(ctx, l.control.sql("announce_drain"), node.ID, l.control.controlChannel)
	return wrap(err, "announce drain")
}

// Owned implements engine.Ownership. It includes the leases of a claim whose answer was lost.
func (l leases) Owned(ctx context.Context, node engine.Node) ([]engine.Lease, error) {
	leases, err := l.readLeases(ctx, "owned_leases", node.ID)
	return leases, wrap(err, "list owned leases")
}

func (l leases) Leases(ctx context.Context, rows []int32) ([]engine.Lease, error) {
	leases, err := l.readLeases(ctx, "leases", rows)
	return leases, wrap(err, "read %d leases", len(rows))
}

func (l leases) readLeases(ctx context.Context, statement string, args ...any) (leases []engine.Lease, err error) {
	err = l.inIncarnation(ctx, func() error {
		return l.repeatably(ctx, func(conn *pgx.Conn) (err error) {
			leases, err = l.queryLeases(ctx, conn, statement, args...)
			return err
		})
	})
	return leases, err
}

// queryLeases reads leases and the incarnation in which they are valid.
func (l leases) queryLeases(ctx context.Context, q batchSender, statement string, args ...any) ([]engine.Lease, error) {
	var in engine.Incarnation
	leases, err := queryAfter(ctx, q, l.control.sql("incarnation"), &in, leaseFrom, l.control.sql(statement), args...)
	texts := make(map[string]string)
	for i := range leases {
		lease := &leases[i]
		lease.Incarnation = in
		// A node keeps its leases in memory, and most have the same texts.
		for _, text := range []*string{&lease.ID.Tenant, &lease.ID.Name, &lease.Owner, (*string)(&lease.Desired)} {
			*text = shared(texts, *text)
		}
	}
	return leases, err
}

// shared returns the text that is equal to s, and adds s if there is none.
func shared(texts map[string]string, s string) string {
	t, found := texts[s]
	if !found {
		t, texts[s] = s, s
	}
	return t
}

// leaseFrom scans the columns of lease_columns.sql.
func leaseFrom(row pgx.CollectableRow) (l engine.Lease, err error) {
	var passedFrom, passedTo []int32
	var passedUpto []int64
	err = row.Scan(&l.Row, &l.ID.Tenant, &l.ID.Name, &l.ID.Partition, &l.Partitions, &l.Share.From, &l.Share.To,
		&passedFrom, &passedTo, &passedUpto, &l.Owner, &l.Epoch, &l.Checkpoint, &l.CrashCount,
		&l.Desired, &l.Attempts, &l.FailingPosition, &l.Failed, &l.Halted, orZero{&l.FailingSince},
		&l.CrashPosition, &l.CrashAttempts, &l.Parked, &l.ParkedStreams, &l.HasCommands, &l.TenantRow)
	for i := range passedFrom {
		l.Share.Passed = append(l.Share.Passed,
			partition.Passed{Range: partition.Range{From: passedFrom[i], To: passedTo[i]}, Position: passedUpto[i]})
	}
	l.Share = l.Share.After(l.Checkpoint)
	return l, err
}

// orZero scans a time, or the zero time for null.
type orZero struct{ *time.Time }

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (z orZero) ScanTimestamptz(v pgtype.Timestamptz) error {
	*z.Time = v.Time
	return nil
}

func (l leases) Release(ctx context.Context, advances []engine.Advance) error {
	if len(advances) == 0 {
		return nil
	}
	args := advanceArgs(advances)
	positions, attempts, replaying := make([]int64, len(advances)), make([]int32, len(advances)),
		make([]int64, len(advances))
	for i, a := range advances {
		positions[i], attempts[i], replaying[i] = a.Begun.Position, int32(a.Begun.Attempt), a.Replaying
	}
	return l.inIncarnation(ctx, func() error {
		return l.durable(ctx, "release leases", func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, l.control.sql("release"),
				append(args, positions, attempts, replaying, l.control.controlChannel)...)
			return err
		})
	})
}

// Advance implements engine.Ownership in one statement. It need not be durable: after a crash, the same events are
// passed over again.
func (l leases) Advance(ctx context.Context, advances []engine.Advance) (map[int32]bool, error) {
	moved := make(map[int32]bool, len(advances))
	if len(advances) == 0 {
		return moved, nil
	}
	err := l.inIncarnation(ctx, func() error {
		rows, _ := l.pool.Query(ctx, l.control.sql("advance_many"), advanceArgs(advances)...)
		var id int32
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			moved[id] = true
			return nil
		})
		return err
	})
	if err != nil {
		return nil, wrap(err, "advance checkpoints") // its rows came before the commit that failed
	}
	return moved, nil
}

// advanceArgs returns the first arguments of release.sql and advance_many.sql. All advances have one owner.
func advanceArgs(advances []engine.Advance) []any {
	n := len(advances)
	ids, epochs, incarnations, olds, news := make([]int32, n), make([]int64, n), make([]int64, n), make([]int64, n),
		make([]int64, n)
	for i, a := range advances {
		ids[i], epochs[i], incarnations[i], olds[i], news[i] = a.Lease.Row, a.Lease.Epoch, int64(a.Lease.Incarnation),
			a.Lease.Checkpoint, a.To
	}
	return []any{ids, epochs, incarnations, olds, news, advances[0].Lease.Owner}
}

func (l leases) Orders(ctx context.Context, node engine.Node, rows []int32) (map[int32]engine.Orders, error) {
	sql, of := l.control.sql("desired_states"), any(rows)
	if rows == nil {
		sql, of = l.control.sql("desired_states_of_node"), node.ID
	}
	found, _ := l.pool.Query(ctx, sql, of)
	states := make(map[int32]engine.Orders)
	var row int32
	var state engine.Orders
	_, err := pgx.ForEachRow(found, []any{&row, &state.Desired, &state.HasCommands}, func() error {
		states[row] = state
		return nil
	})
	return states, wrap(err, "read desired states")
}
