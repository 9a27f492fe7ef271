package pgstore

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/projection"
)

// conflict marks the error of a batch that was rolled back because of other transactions. For a deadlock of its own
// transaction, which met the error met, it finds the other projections in it.
func (b *batchTx) conflict(ctx context.Context, conn *pgx.Conn, met, err error) error {
	fault := classify(err)
	if fault.Class != faults.Infrastructure ||
		!errors.Is(err, projection.ErrLockWait) &&
			!pgerr.Is(err, pgerr.Deadlock, pgerr.SerializationFailure, pgerr.LockNotAvailable) {
		return err
	}
	marked := *fault
	marked.Conflict = true
	var pgErr *pgconn.PgError
	if errors.As(met, &pgErr) && pgErr.Code == pgerr.Deadlock && !conn.IsClosed() {
		found, failed := b.rivals(ctx, conn, deadlocked(pgErr.Detail))
		if failed != nil {
			b.store.log.Debug("finding the other projections in a deadlock failed", zap.Stringer("projection", b.id),
				zap.Error(failed))
		}
		b.sendBack(ctx, found)
		for _, r := range found {
			marked.Rivals = append(marked.Rivals, r.Rival)
		}
	}
	return &marked
}

// blocked marks the fault of a transaction that could not begin, since it waited too long for the batches of others to
// end.
func blocked(fault *faults.Fault) *faults.Fault {
	if !pgerr.Is(fault, pgerr.LockNotAvailable) {
		return fault
	}
	marked := *fault
	marked.Conflict, marked.Blocked = true, true
	return &marked
}

var number = regexp.MustCompile(`\d+`)

// deadlocked returns the pids in the detail of a deadlock. Each line names the process that waits, what for, and last
// the process that it waits for, in the language of the server.
func deadlocked(detail string) (pids []int32) {
	for line := range strings.Lines(detail) {
		numbers := number.FindAllString(line, -1)
		if len(numbers) == 0 {
			continue
		}
		if pid, err := strconv.ParseInt(numbers[len(numbers)-1], 10, 32); err == nil {
			pids = append(pids, int32(pid))
		}
	}
	return pids
}

// met is another projection in a deadlock. waits reports whether its batch waits for a lock.
type met struct {
	faults.Rival
	waits bool
}

// rivals returns the other projections whose batches run in these sessions. It is called at once after the rollback,
// while they still run.
func (b *batchTx) rivals(ctx context.Context, conn *pgx.Conn, pids []int32) ([]met, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	rows, _ := conn.Query(ctx, b.store.control.sql("deadlock_rivals"), pgx.QueryExecModeExec, pids,
		int64(uint32(b.store.control.batchClass)))
	rivals, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m met, err error) {
		return m, row.Scan(&m.Row, &m.ID.Tenant, &m.ID.Name, &m.ID.Partition, &m.waits)
	})
	return slices.DeleteFunc(rivals, func(m met) bool { return m.ID == b.id }), err
}
