package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
)

func (s port) InsertOperation(ctx context.Context, o engine.NewOperation) (number int64, err error) {
	o.ID = engine.FullID(o.ID)
	err = s.durable(ctx, "request the operation", func(tx pgx.Tx) error {
		if err := s.active(ctx, tx, o.ID.Tenant); err != nil {
			return err
		}
		if err := s.unknown(ctx, tx, o.ID); err != nil {
			return err
		}
		inserted, err := runOne(ctx, tx, s.control.sql("insert_operation"),
			[]any{o.ID.Tenant, o.ID.Name, string(o.Kind), o.Holds, o.Options, s.control.controlChannel}, &number, nil)
		if err == nil && !inserted {
			err = s.alreadyOpen(ctx, tx, o.ID)
		}
		return err
	})
	return number, err
}

// active takes the structural lock of a tenant, and returns an error if the tenant is archived, being dropped or being
// copied. A paused tenant is active.
func (s *Store) active(ctx context.Context, tx executor, tenant string) error {
	t, err := s.lockTenant(ctx, tx, tenant)
	if err == nil {
		err = t.changing()
	}
	if err == nil && t.state == projection.TenantArchived {
		err = projection.ErrTenantArchived
	}
	return err
}

// alreadyOpen returns projection.ErrOperationOpen if a projection has an open operation.
func (s *Store) alreadyOpen(ctx context.Context, q querier, id projection.ID) error {
	open, err := s.operation(ctx, q, "open_operation", id.Tenant, id.Name)
	if errors.Is(err, projection.ErrOperationNotFound) {
		return nil
	}
	if err == nil {
		err = engine.AlreadyOpen(open)
	}
	return err
}

func (s port) Operation(ctx context.Context, number int64) (engine.Operation, error) {
	o, err := s.operation(ctx, s.pool, "operation", number)
	return o, failed(err, "read operation %d", number)
}

func (s port) OpenOperation(ctx context.Context, id projection.ID) (engine.Operation, error) {
	id = engine.FullID(id)
	o, err := s.operation(ctx, s.pool, "open_operation", id.Tenant, id.Name)
	return o, failed(err, "read the operation of %s", id)
}

// operation reads the operation of a statement, or returns projection.ErrOperationNotFound.
func (s *Store) operation(ctx context.Context, q querier, statement string, args ...any) (o engine.Operation, err error) {
	found, err := runOne(ctx, q, s.control.sql(statement), args, operationColumns(&o)...)
	if err == nil && !found {
		err = projection.ErrOperationNotFound
	}
	return o, err
}

// operationColumns are the results of operation.sql.
func operationColumns(o *engine.Operation) []any {
	return []any{&o.Number, &o.ID.Tenant, &o.ID.Name, &o.Kind, &o.Holds, &o.Options, &o.Epoch, &o.Node, &o.RequestedAt, orZero{&o.StartedAt},
		orZero{&o.EndedAt}, &o.Failure, &o.Error}
}

func (s port) CancelOperation(ctx context.Context, id projection.ID) error {
	id = engine.FullID(id)
	return s.durable(ctx, fmt.Sprintf("cancel the operation of %s", id), func(tx pgx.Tx) error {
		if err := s.lockTenants(ctx, tx, id.Tenant); err != nil {
			return err
		}
		reason := projection.ErrOperationCancelled
		ended, err := runOne(ctx, tx, s.control.sql("cancel_operation"),
			[]any{id.Tenant, id.Name, string(engine.FailureOf(reason)), reason.Error(), s.control.controlChannel}, nil, nil)
		if err == nil && !ended {
			if err = s.unknown(ctx, tx, id); err == nil {
				err = projection.ErrOperationNotFound
			}
		}
		return err
	})
}

// TakeOperation implements engine.Store. Projections that stand still for an operation of a dead node, which this node cannot
// carry out, run again. If the node that carried out the operation may be dead, it ends the sessions in
// which the hook still runs: they cannot commit, but may hold locks on read models.
func (s port) TakeOperation(ctx context.Context, node engine.Node, running []int64) (*engine.Operation, error) {
	if running == nil {
		running = []int64{}
	}
	rows, _ := s.pool.Query(ctx, s.control.sql("open_operations"), node.ID, running)
	type open struct {
		Number       int64
		Tenant, Name string
		Held         bool
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[open])
	if err != nil {
		return nil, failed(err, "list open operations")
	}
	for _, candidate := range list {
		if node.Member().Knows(candidate.Tenant, candidate.Name) {
			o, err := s.takeOperation(ctx, node, candidate.Number)
			if o != nil || err != nil {
				return o, err
			}
		} else if candidate.Held {
			if _, err := s.pool.Exec(ctx, s.control.sql("release_orphans"), candidate.Number, s.control.controlChannel); err != nil {
				return nil, failed(err, "end the holds of operation %d", candidate.Number)
			}
		}
	}
	return nil, nil
}

func (s *Store) takeOperation(ctx context.Context, node engine.Node, number int64) (*engine.Operation, error) {
	var o engine.Operation
	var found, again bool
	var began time.Time
	err := s.durable(ctx, "take an operation", func(tx pgx.Tx) (err error) {
		found, err = runOne(ctx, tx, s.control.sql("take_operation"), []any{node.ID, number},
			append(operationColumns(&o), &o.Age, &again, &began)...)
		return err
	})
	if err != nil || !found {
		return nil, err
	}
	if again {
		rows, err := s.operationRows(ctx, o)
		if err != nil {
			return nil, failed(err, "take an operation")
		}
		s.endZombieBatches(ctx, wide(rows), began)
	}
	return &o, nil
}

// operationRows returns the rows of the projections that an operation holds.
func (s *Store) operationRows(ctx context.Context, o engine.Operation) ([]int32, error) {
	rows, _ := s.pool.Query(ctx, s.control.sql("operation_rows"), o.ID.Tenant, o.Holds)
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}

func wide(rows []int32) []int64 {
	wide := make([]int64, len(rows))
	for i, row := range rows {
		wide[i] = int64(row)
	}
	return wide
}

// Hold implements engine.Store. As in PauseEnded, an expired heartbeat alone takes a lease away.
func (s port) Hold(ctx context.Context, o engine.Operation, names []string) (free bool, err error) {
	held := false
	err = s.durable(ctx, fmt.Sprintf("hold the projections of %s", o), func(tx pgx.Tx) error {
		if err := s.active(ctx, tx, o.ID.Tenant); err != nil {
			return err
		}
		open, err := runOne(ctx, tx, s.control.sql("hold"), []any{o.Number, o.Epoch, s.control.controlChannel, names}, &held, nil)
		if err == nil && !open {
			err = projection.ErrLeaseLost
		}
		return err
	})
	if err != nil || !held {
		return false, err
	}
	stopped, free, err := s.stopEnded(ctx, o.ID, names, &o.Number)
	return stopped && free, err
}

func (s port) BeginHook(ctx context.Context, o engine.Operation, run int64) (others int, err error) {
	err = s.durable(ctx, fmt.Sprintf("begin the hook of %s", o), func(tx pgx.Tx) error {
		open, err := runOne(ctx, tx, s.control.sql("begin_hook"), []any{o.Number, o.Epoch, run}, &others)
		if err == nil && !open {
			err = projection.ErrLeaseLost
		}
		return err
	})
	return others, err
}

func (s port) HookReturned(ctx context.Context, o engine.Operation, run int64) error {
	_, err := s.pool.Exec(ctx, s.control.sql("hook_returned"), o.Number, run)
	return failed(err, "end the hook of %s", o)
}

// RunOperation implements engine.Store. It announces the transaction as a batch of each partition, so that TakeOperation
// finds the session. After the hook, it locks the partitions as Repartition does.
func (s port) RunOperation(ctx context.Context, o engine.Operation, run engine.OperationRun) error {
	rows, err := s.operationRows(ctx, o)
	if err != nil {
		return failed(err, "read the partitions of %s", o)
	}
	b := newTx(s.Store, o.ID, fmt.Sprintf("operation %d (%s)", o.Number, o.Kind), batchOptions{timeout: run.Timeout, durable: true})
	b.fence = fence{rows: rows, begin: fmt.Sprintf("%s.check_operation(%d, %d)", s.control.quoted, o.Number, o.Epoch),
		end: fmt.Sprintf("%s.end_operation('%s', %d, %d, null, null, %s)", s.control.quoted, b.name, o.Number, o.Epoch, sqltext.String(s.control.controlChannel))}
	b.afterHandler = func(ctx context.Context, conn *pgx.Conn) error { return s.changeByOperation(ctx, conn, o, run) }
	return b.run(engine.WithProjection(ctx, o.ID), func(ctx context.Context, tx pgx.Tx) error {
		return run.Hook.Call(ctx, tx)
	})
}

// changeByOperation makes the changes of an operation in its transaction, after the hook.
func (s *Store) changeByOperation(ctx context.Context, conn *pgx.Conn, o engine.Operation, run engine.OperationRun) error {
	c, err := s.stillPartitions(ctx, conn, o)
	if err != nil {
		return err
	}
	switch o.Kind {
	case engine.OperationRebuild:
		return c.rebuild(ctx)
	case engine.OperationSwap:
		return s.swap(ctx, conn, o, run.Types)
	case engine.OperationDrop:
		return s.dropVersion(ctx, conn, o.ID, c.Rows)
	}
	return engine.UnknownOperation(o)
}

func (s port) NoteOperation(ctx context.Context, o engine.Operation, reason string) error {
	_, err := s.pool.Exec(ctx, s.control.sql("note_operation"), o.Number, o.Epoch, excerpt.Storable(reason), s.control.controlChannel)
	return failed(err, "write why %s is tried again", o)
}

func (s port) ReleaseOperation(ctx context.Context, o engine.Operation) error {
	_, err := s.pool.Exec(ctx, s.control.sql("note_operation"), o.Number, o.Epoch, nil, s.control.controlChannel)
	return failed(err, "release %s", o)
}

func (s port) FailOperation(ctx context.Context, o engine.Operation, reason error) error {
	return s.durable(ctx, fmt.Sprintf("end %s", o), func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.control.sql("end_operation"), o.Number, o.Epoch, string(engine.FailureOf(reason)),
			excerpt.Storable(reason.Error()), s.control.controlChannel)
		return err
	})
}
