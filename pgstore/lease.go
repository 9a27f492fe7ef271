package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
)

// Ensure makes the rows of the projections for each tenant where they are missing.
func (s port) Ensure(ctx context.Context, tenants, names []string) error {
	return s.durable(ctx, "register projections", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.control.sql("ensure_projections"), tenants, names)
		return err
	})
}

// Free lists the leases that the node could claim. judge says whether a heartbeat that ran out means death.
func (s port) Free(ctx context.Context, node engine.Node, judge bool) ([]engine.LeaseRef, error) {
	seats, err := queryUncompiled(ctx, s.Store, func(row pgx.CollectableRow) (seat engine.LeaseRef, err error) {
		err = row.Scan(&seat.Row, &seat.ID.Tenant, &seat.ID.Name, &seat.ID.Partition)
		return seat, err
	}, "free_leases", node.Projections, nonNil(node.Tenants), judge)
	return seats, failed(err, "look for free leases")
}

// nonNil returns items, or an empty slice if it is nil, which would be null.
func nonNil(items []string) []string {
	if items == nil {
		return []string{}
	}
	return items
}

// Counts tells how many leases are wanted, apart for each of the tenants named, together for all others.
func (s port) Counts(ctx context.Context, tenants []string) ([]engine.Want, error) {
	counts, err := queryUncompiled(ctx, s.Store, func(row pgx.CollectableRow) (c engine.Want, err error) {
		err = row.Scan(&c.Tenant, &c.Name, &c.Leases)
		return c, err
	}, "desired_counts", nonNil(tenants))
	return counts, failed(err, "count leases")
}

// Claim takes those of the leases that are still free, and raises their epochs. It commits synchronously and waits for
// nobody. Then it ends the sessions in which batches of dead owners still run: they could not commit, but may hold locks of
// the read models. Where it must not, they end by their time-outs.
func (s port) Claim(ctx context.Context, node engine.Node, rows []int32, judge bool) ([]engine.Lease, error) {
	claim, err := s.claim(ctx, node, rows, judge)
	if err != nil || len(claim.taken) == 0 {
		return claim.leases, err
	}
	s.endLeftovers(ctx, claim.taken, claim.began)
	return claim.leases, nil
}

// endLeftovers ends the sessions in which batches of dead owners of these rows, begun before that time, still run.
func (s *Store) endLeftovers(ctx context.Context, rows []int64, before time.Time) {
	if _, err := s.pool.Exec(ctx, queries.Text("end_zombie_batches"), int64(uint32(s.control.batchClass)), rows, before); err != nil {
		s.log.Debug("ending the batches of dead owners failed", zap.Error(err))
	}
}

// claim is what a claim got: taken are the rows of leases of dead owners, began is when it began, by the server's clock.
type claim struct {
	leases []engine.Lease
	taken  []int64
	began  time.Time
}

func (s *Store) claim(ctx context.Context, node engine.Node, rows []int32, judge bool) (got claim, err error) {
	err = s.within(ctx, func() error { return s.claimOnce(ctx, node, rows, judge, &got) })
	return got, err
}

func (s *Store) claimOnce(ctx context.Context, node engine.Node, rows []int32, judge bool, got *claim) error {
	*got = claim{}
	return s.durable(ctx, "claim leases", func(tx pgx.Tx) error {
		found, _ := tx.Query(ctx, s.control.sql("claim"), node.ID, rows, judge)
		var row int32
		var dead bool
		var ours []int32
		_, err := pgx.ForEachRow(found, []any{&row, &dead, &got.began}, func() error {
			if ours = append(ours, row); dead {
				got.taken = append(got.taken, int64(row))
			}
			return nil
		})
		if err != nil || len(ours) == 0 {
			return err
		}
		got.leases, err = s.queryLeases(ctx, tx, s.control.sql("leases"), ours)
		return err
	})
}

// Leave tells the other nodes that the node gives its leases back, so that they take its share.
func (s port) AnnounceDrain(ctx context.Context, node engine.Node) error {
	_, err := s.pool.Exec(ctx, s.control.sql("announce_drain"), node.ID, s.control.controlChannel)
	return failed(err, "leave")
}

// Owned returns all leases that the node holds, also those of a claim whose answer was lost.
func (s port) Owned(ctx context.Context, node engine.Node) ([]engine.Lease, error) {
	leases, err := s.readLeases(ctx, s.control.sql("owned_leases"), node.ID)
	return leases, failed(err, "list owned leases")
}

// Leases reads leases by their rows, whoever holds them. A row that does not exist any more is left out.
func (s port) Leases(ctx context.Context, rows []int32) ([]engine.Lease, error) {
	leases, err := s.readLeases(ctx, s.control.sql("leases"), rows)
	return leases, failed(err, "read %d leases", len(rows))
}

func (s *Store) readLeases(ctx context.Context, sql string, args ...any) (leases []engine.Lease, err error) {
	err = s.within(ctx, func() error {
		return s.onConn(ctx, func(conn *pgx.Conn) (err error) {
			leases, err = s.queryLeases(ctx, conn, sql, args...)
			return err
		})
	})
	return leases, err
}

// queryLeases reads leases and the incarnation that they are valid in. A standby refuses it also where it knows of none.
func (s *Store) queryLeases(ctx context.Context, q batchSender, sql string, args ...any) ([]engine.Lease, error) {
	var in engine.Incarnation
	leases, err := queryAfter(ctx, q, s.control.sql("incarnation"), &in, leaseFrom, sql, args...)
	for i := range leases {
		leases[i].Incarnation = in
	}
	return leases, err
}

// leaseFrom scans the columns of lease_columns.sql.
func leaseFrom(row pgx.CollectableRow) (l engine.Lease, err error) {
	err = row.Scan(&l.Row, &l.ID.Tenant, &l.ID.Name, &l.ID.Partition, &l.Owner, &l.Epoch, &l.Checkpoint, &l.CrashCount,
		&l.Desired, &l.Attempts, &l.FailingPosition, &l.LastError, &l.Failed, &l.Halted, orZero{&l.FailingSince},
		&l.CrashPosition, &l.CrashAttempts, &l.Parked, &l.ParkedStreams, &l.HasCommands)
	return l, err
}

// orZero scans a time that may be null, which is the zero time.
type orZero struct{ *time.Time }

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (z orZero) ScanTimestamptz(v pgtype.Timestamptz) error {
	*z.Time = v.Time
	return nil
}

// Release gives leases back, and tells the nodes. Those that are no longer held are passed over.
func (s port) Release(ctx context.Context, advances []engine.Advance) error {
	if len(advances) == 0 {
		return nil
	}
	owner, args := advanceArgs(advances)
	begun, attempts, replaying := make([]int64, len(advances)), make([]int32, len(advances)), make([]int64, len(advances))
	for i, a := range advances {
		begun[i], attempts[i], replaying[i] = a.Begun.Position, int32(a.Begun.Attempt), a.Replaying
	}
	return s.within(ctx, func() error {
		return s.durable(ctx, "release leases", func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, s.control.sql("release"), append(args, owner, begun, attempts, replaying, s.control.controlChannel)...)
			return err
		})
	})
}

// Advance moves checkpoints over events that do not concern their projections, all in one statement, and returns the
// rows that moved. It need not be durable: what a crash takes back is only passed over again.
func (s port) Advance(ctx context.Context, advances []engine.Advance) (map[int32]bool, error) {
	moved := make(map[int32]bool, len(advances))
	if len(advances) == 0 {
		return moved, nil
	}
	owner, args := advanceArgs(advances)
	err := s.within(ctx, func() error {
		rows, _ := s.pool.Query(ctx, s.control.sql("advance_many"), append(args, owner)...)
		var id int32
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			moved[id] = true
			return nil
		})
		return err
	})
	if err != nil {
		return nil, failed(err, "advance checkpoints")
	}
	return moved, nil
}

// advanceArgs lays advances out as the arrays that release and advance_many take, and names their owner, which is the
// same for all.
func advanceArgs(advances []engine.Advance) (owner string, args []any) {
	n := len(advances)
	ids, epochs, seen, olds, news := make([]int32, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i, a := range advances {
		ids[i], epochs[i], seen[i], olds[i], news[i] = a.Lease.Row, a.Lease.Epoch, int64(a.Lease.Incarnation), a.Lease.Checkpoint, a.To
	}
	return advances[0].Lease.Owner, []any{ids, epochs, seen, olds, news}
}
