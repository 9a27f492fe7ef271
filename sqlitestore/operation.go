package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
)

// keepOperations is how long an operation that has ended is kept.
const keepOperations = 24 * time.Hour

// operationsChanged is the notice that an operation was requested or cancelled.
var operationsChanged = engine.Notice{Control: true, Operations: true}

func (s port) InsertOperation(ctx context.Context, o engine.NewOperation) (number int64, err error) {
	o.ID = engine.FullID(o.ID)
	if err := s.ready(ctx); err != nil {
		return 0, failed(err, "request the operation")
	}
	err = s.transact(ctx, func(tx *sql.Tx) error {
		t, err := activeTenant(ctx, tx, o.ID.Tenant)
		if err != nil {
			return err
		}
		if err := unknownProjection(ctx, tx, o.ID); err != nil {
			return err
		}
		now := time.Now()
		if err := execute(ctx, tx, "delete_old_operations", t.id, o.ID.Name, now.Add(-keepOperations).UnixMicro()); err != nil {
			return err
		}
		inserted, err := runOne(ctx, tx, "insert_operation", []any{t.id, o.ID.Name, string(o.Kind), list(o.Holds), o.Options, now.UnixMicro()}, &number)
		switch {
		case err != nil:
			return err
		case !inserted:
			return alreadyOpen(ctx, tx, o.ID)
		}
		return s.announce(ctx, tx, operationsChanged)
	})
	return number, failed(err, "request the operation")
}

// activeTenant returns the tenant of a name, or an error if it is archived or being dropped. A paused tenant is active.
func activeTenant(ctx context.Context, tx *sql.Tx, name string) (t tenantRow, err error) {
	t, err = lookUpTenant(ctx, tx, name)
	switch {
	case err != nil:
	case t.state == projection.TenantArchived:
		err = projection.ErrTenantArchived
	case t.state == projection.TenantDropping:
		err = projection.ErrTenantDropping
	}
	return t, err
}

// alreadyOpen returns projection.ErrOperationOpen if a projection has an open operation.
func alreadyOpen(ctx context.Context, q querier, id projection.ID) error {
	open, err := readOperation(ctx, q, "open_operation", id.Tenant, id.Name)
	if errors.Is(err, projection.ErrOperationNotFound) {
		return nil
	}
	if err == nil {
		err = engine.AlreadyOpen(open)
	}
	return err
}

func (s port) Operation(ctx context.Context, number int64) (o engine.Operation, err error) {
	if err = s.ready(ctx); err == nil {
		o, err = readOperation(ctx, s.readers, "operation", number)
	}
	return o, failed(err, "read operation %d", number)
}

func (s port) OpenOperation(ctx context.Context, id projection.ID) (o engine.Operation, err error) {
	id = engine.FullID(id)
	if err = s.ready(ctx); err == nil {
		o, err = readOperation(ctx, s.readers, "open_operation", id.Tenant, id.Name)
	}
	return o, failed(err, "read the operation of %s", id)
}

// readOperation reads the operation of a statement, or returns projection.ErrOperationNotFound.
func readOperation(ctx context.Context, q querier, statement string, args ...any) (o engine.Operation, err error) {
	var holds string
	found, err := runOne(ctx, q, statement, args, &o.Number, &o.ID.Tenant, &o.ID.Name, &o.Kind, &holds, &o.Options, &o.Epoch, &o.Node,
		micros{&o.RequestedAt}, micros{&o.StartedAt}, micros{&o.EndedAt}, &o.Failure, &o.Error)
	switch {
	case err != nil:
		return o, err
	case !found:
		return o, projection.ErrOperationNotFound
	}
	return o, json.Unmarshal([]byte(holds), &o.Holds)
}

func (s port) CancelOperation(ctx context.Context, id projection.ID) error {
	id = engine.FullID(id)
	err := s.ready(ctx)
	if err == nil {
		err = s.transact(ctx, func(tx *sql.Tx) error {
			open, err := readOperation(ctx, tx, "open_operation", id.Tenant, id.Name)
			if errors.Is(err, projection.ErrOperationNotFound) {
				if unknown := unknownProjection(ctx, tx, id); unknown != nil {
					err = unknown
				}
			}
			if err != nil {
				return err
			}
			if err := s.endOperation(ctx, tx, open, projection.ErrOperationCancelled); err != nil {
				return err
			}
			return s.announce(ctx, tx, operationsChanged)
		})
	}
	return failed(err, "cancel the operation of %s", id)
}

// endOperationOf ends the open operation of a projection that is about to be removed, if there is one.
func (s *Store) endOperationOf(ctx context.Context, tx *sql.Tx, id projection.ID, reason error) error {
	open, err := readOperation(ctx, tx, "open_operation", id.Tenant, id.Name)
	if errors.Is(err, projection.ErrOperationNotFound) {
		return nil
	}
	if err == nil {
		err = s.endOperation(ctx, tx, open, reason)
	}
	return err
}

// endOperation ends an operation and lets its projections run again. It returns projection.ErrLeaseLost if the operation has
// ended or was taken over. reason is nil if it did not fail.
func (s *Store) endOperation(ctx context.Context, tx *sql.Tx, o engine.Operation, reason error) error {
	var code, text any
	if reason != nil {
		code, text = string(engine.FailureOf(reason)), excerpt.Storable(reason.Error())
	}
	ended, err := runOne(ctx, tx, "end_operation", []any{o.Number, o.Epoch, time.Now().UnixMicro(), code, text})
	if err != nil {
		return err
	}
	if !ended {
		return operationLost(o)
	}
	return s.releaseHolds(ctx, tx, o.Number)
}

func operationLost(o engine.Operation) error {
	return fmt.Errorf("%s was ended or taken over since epoch %d: %w", o, o.Epoch, projection.ErrLeaseLost)
}

// checkOperation returns projection.ErrLeaseLost unless an operation is open and nothing took it over.
func checkOperation(ctx context.Context, tx *sql.Tx, o engine.Operation) error {
	open, err := runOne(ctx, tx, "check_operation", []any{o.Number, o.Epoch}, new(int64))
	if err == nil && !open {
		err = operationLost(o)
	}
	return err
}

func (s port) TakeOperation(ctx context.Context, node engine.Node, running []int64) (taken *engine.Operation, err error) {
	var id projection.ID
	var number int64
	var held bool
	var candidates, orphans []int64
	err = each(ctx, s.readers, "open_operations", []any{node.ID, list(running)}, []any{&number, &id.Tenant, &id.Name, &held}, func() error {
		if node.Member().Knows(id.Tenant, id.Name) {
			candidates = append(candidates, number)
		} else if held {
			orphans = append(orphans, number)
		}
		return nil
	})
	if err == nil {
		err = s.releaseOrphans(ctx, orphans)
	}
	if err != nil || len(candidates) == 0 {
		return nil, failed(err, "list open operations")
	}
	err = s.transact(ctx, func(tx *sql.Tx) error {
		done, err := runOne(ctx, tx, "take_operation", []any{node.ID, candidates[0], time.Now().UnixMicro()})
		if err != nil || !done {
			return err
		}
		o, err := readOperation(ctx, tx, "operation", candidates[0])
		o.Age = time.Since(o.StartedAt)
		taken = &o
		return err
	})
	if err != nil {
		return nil, failed(err, "take an operation")
	}
	return taken, nil
}

// releaseOrphans lets the projections run again that stand still for operations of dead nodes, which this node cannot carry
// out. The operations stay open.
func (s *Store) releaseOrphans(ctx context.Context, operations []int64) error {
	if len(operations) == 0 {
		return nil
	}
	return s.transact(ctx, func(tx *sql.Tx) error {
		for _, operation := range operations {
			if err := s.releaseHolds(ctx, tx, operation); err != nil {
				return err
			}
		}
		return nil
	})
}

// releaseHolds lets the projections of an operation run again.
func (s *Store) releaseHolds(ctx context.Context, tx *sql.Tx, operation int64) error {
	rows, err := column[int32](ctx, tx, "release_holds", operation)
	for _, row := range rows {
		if err == nil {
			err = s.announce(ctx, tx, engine.Notice{Control: true, Row: row})
		}
	}
	return err
}

func (s port) Hold(ctx context.Context, o engine.Operation, names []string) (free bool, err error) {
	doing := fmt.Sprintf("hold the projections of %s", o)
	stopped, free, dead, err := s.stopState(ctx, s.readers, o.ID, names, &o.Number)
	if err != nil {
		return false, failed(err, "%s", doing)
	}
	if !stopped || dead {
		err = s.transact(ctx, func(tx *sql.Tx) error {
			if _, err := activeTenant(ctx, tx, o.ID.Tenant); err != nil {
				return err
			}
			if err := checkOperation(ctx, tx, o); err != nil {
				return err
			}
			rows, err := column[int32](ctx, tx, "hold", o.ID.Tenant, list(names), o.Number)
			for _, row := range rows {
				if err == nil {
					err = s.announce(ctx, tx, engine.Notice{Control: true, Row: row})
				}
			}
			return err
		})
		if err == nil {
			stopped, free, err = s.stopEnded(ctx, o.ID, names, &o.Number)
		}
	}
	return err == nil && stopped && free, failed(err, "%s", doing)
}

func (s port) BeginHook(ctx context.Context, o engine.Operation, run int64) (others int, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		open, err := runOne(ctx, tx, "begin_hook", []any{o.Number, o.Epoch, run}, &others)
		if err == nil && !open {
			err = operationLost(o)
		}
		return err
	})
	return others, failed(err, "begin the hook of %s", o)
}

func (s port) HookReturned(ctx context.Context, o engine.Operation, run int64) error {
	err := s.transact(ctx, func(tx *sql.Tx) error { return execute(ctx, tx, "hook_returned", o.Number, run) })
	return failed(err, "end the hook of %s", o)
}

func (s port) RunOperation(ctx context.Context, o engine.Operation, run engine.OperationRun) error {
	b := batchTx{store: s.Store, id: o.ID, what: fmt.Sprintf("operation %d (%s)", o.Number, o.Kind), timeout: run.Timeout,
		check: func(ctx context.Context, tx *sql.Tx) error { return checkOperation(ctx, tx, o) },
		change: func(ctx context.Context, tx *sql.Tx) error {
			if err := s.changeByOperation(ctx, tx, o, run); err != nil {
				return err
			}
			return s.endOperation(ctx, tx, o, nil)
		}}
	return b.run(engine.WithProjection(ctx, o.ID), func(ctx context.Context, tx *sql.Tx) error {
		return run.Hook.Call(ctx, tx)
	})
}

// changeByOperation makes the changes of an operation in its transaction, after the hook.
func (s *Store) changeByOperation(ctx context.Context, tx *sql.Tx, o engine.Operation, run engine.OperationRun) error {
	p, err := s.stillPartitions(ctx, tx, o)
	if err != nil {
		return err
	}
	switch o.Kind {
	case engine.OperationRebuild:
		return p.rebuild(ctx)
	case engine.OperationSwap:
		return s.swap(ctx, tx, o, run.Types)
	case engine.OperationDrop:
		return s.dropVersion(ctx, tx, o.ID, p.Rows)
	}
	return engine.UnknownOperation(o)
}

func (s port) NoteOperation(ctx context.Context, o engine.Operation, reason string) error {
	return failed(s.noteOperation(ctx, o, excerpt.Storable(reason)), "write why %s is tried again", o)
}

func (s port) ReleaseOperation(ctx context.Context, o engine.Operation) error {
	return failed(s.noteOperation(ctx, o, nil), "release %s", o)
}

// noteOperation writes why the last try of an operation failed, and lets its projections run. If reason is nil, its node does not
// carry it out any more.
func (s *Store) noteOperation(ctx context.Context, o engine.Operation, reason any) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		noted, err := runOne(ctx, tx, "note_operation", []any{o.Number, o.Epoch, reason})
		if err != nil || !noted {
			return err
		}
		return s.releaseHolds(ctx, tx, o.Number)
	})
}

func (s port) FailOperation(ctx context.Context, o engine.Operation, reason error) error {
	err := s.transact(ctx, func(tx *sql.Tx) error { return s.endOperation(ctx, tx, o, reason) })
	return failed(err, "end %s", o)
}
