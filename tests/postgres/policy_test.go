package postgres_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

func TestFaultsOfTheInfrastructureAreNobodysToDecide(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.exec("create table model (n int)")
	b.exec("insert into model values (0)")
	last := b.Append("a", 10).Positions[9]
	release := b.lock("update model set n = -1")
	var asked atomic.Int64
	calls := make(map[string]*atomic.Int64)
	var projections []millrace.Projection
	for name, fail := range map[string]func(ctx context.Context, tx kit.Tx) error{
		"stranger's lock":    kit.Exec("update model set n = n + 1"),
		"terminated session": kit.Exec("select pg_terminate_backend(pg_backend_pid()); select 1"),
		"deadlock":           kit.Raise("40P01"),
		"server full":        kit.Raise("53300"),
	} {
		n := new(atomic.Int64)
		calls[name] = n
		projections = append(projections, millrace.Projection{Name: name, MaxEvents: 1, Timeout: 600 * time.Millisecond, Retry: kit.Soon(0), OnFailure: projection.ActionStop,
			FailureHandler: func(context.Context, projection.Failure) projection.Action {
				asked.Add(1)
				return projection.ActionStop
			},
			Handler: b.Store.Batch(kit.FailsAt(name, kit.Any, func(ctx context.Context, tx kit.Tx, _ int, _ int64) error {
				if n.Add(1) > 3 && name != "stranger's lock" {
					return nil
				}
				return projection.Skip(fail(ctx, tx)) // not even the handler is asked
			}))})
	}
	rt := b.Running(millrace.Config{}, projections...)
	b.Eventually("the stranger was waited for", func() bool { return calls["stranger's lock"].Load() >= 3 })
	release()
	for name := range calls {
		b.Reaches(rt, name, last)
		b.Verify(name)
		if s := b.Status(rt, name); s.Parked+s.Skipped != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("FailureHandler was asked %d times", n)
	}
}
