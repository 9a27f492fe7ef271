package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tests/kit"
)

// The server crashes at each step of a rebuild and of a swap. Both end, and each event is applied once.
func TestOperationsOutliveCrashesOfTheServer(t *testing.T) {
	t.Parallel()
	b, server := private(t, pgtest.Options{Settings: pgtest.AsyncCommits(nil)})
	var next atomic.Pointer[kit.Step] // the step at which the server crashes, once
	next.Store(new(kit.Step))
	crashed := make(chan error, 1)
	config := kit.On(kit.Quick, kit.AtSteps(b.Store, func(step kit.Step, _ []string) {
		if at := next.Load(); *at == step && next.CompareAndSwap(at, new(kit.Step)) {
			crashed <- server.CrashBackend(b.Ctx)
		}
	}))
	shapes := []millrace.Projection{b.Rebuildable("p")}
	for v := 1; v <= 6; v++ {
		// After a crash, that many events are handled one by one.
		shape := millrace.Projection{
			Name: "v", Version: v, MaxEvents: 8, Handler: b.Store.Batch(kit.Record(projection.VersionName("v", v))),
		}
		if v > 1 {
			shape.Swap = b.Store.Hook(func(context.Context, kit.Tx) error { return nil })
		}
		shapes = append(shapes, shape)
	}
	rt := b.Runtime(config, append(shapes, b.Recorders("other")...)...)
	b.Start(rt)
	stop := b.AppendThrough(1)
	for _, p := range shapes {
		b.Reaches(rt, projection.VersionName(p.Name, max(1, p.Version)), 1)
	}
	b.exec("checkpoint") // the first crash does not undo the registration
	crashes := func(doing string, step kit.Step, id millrace.ProjectionID,
		request func(id millrace.ProjectionID) error) {
		next.Store(&step)
		b.InTime(doing+" with a crash when it is "+string(step), func() {
			err := request(id)
			for ; err != nil && b.Store.Engine().Classify(err).Class == faults.Infrastructure; err = request(id) {
				kit.Pass(b.Ctx, 20*time.Millisecond) // the answer to the request was lost
			}
			if errors.Is(err, projection.ErrOperationOpen) { // of a request before
				b.Eventually("the "+doing+" ends", func() bool {
					err = rt.WaitOperation(b.Ctx, id)
					return err == nil || errors.Is(err, projection.ErrOperationNotFound)
				})
				err = nil
			}
			b.Must(err)
			b.Must(<-crashed)
		})
	}
	rebuild := func(id millrace.ProjectionID) error { return rt.Rebuild(b.Ctx, id, admin.ResetOptions{}) }
	swap := func(id millrace.ProjectionID) error { return rt.Swap(b.Ctx, id, admin.SwapOptions{}) }
	for i, step := range []kit.Step{kit.Taken, kit.Looks, kit.Held, kit.Hooks, kit.Committed} {
		if step != kit.Looks {
			crashes("rebuild", step, millrace.ProjectionID{Name: "p"}, rebuild)
		}
		crashes("swap", step, millrace.ProjectionID{Name: projection.VersionName("v", i+2)}, swap)
	}
	stop()
	last := b.Head()
	for _, name := range []string{"p", "v@6", "other"} {
		b.Eventually(name+" has handled everything", func() bool {
			status, err := rt.Status(b.Ctx, admin.StatusFilter{}) // the server may recover
			return err == nil && status.Projection(millrace.ProjectionID{Name: name}).Checkpoint >= last
		})
		b.Verify(name)
	}
}

// A hook that crashes the server each time is given up.
func TestHookThatCrashesTheServer(t *testing.T) {
	t.Parallel()
	b, _ := private(t, pgtest.Options{})
	b.Append("s", 5)
	var crashes atomic.Int64
	deadly := b.Rebuildable("p")
	deadly.Reset = b.Store.Hook(func(ctx context.Context, tx kit.Tx) error {
		var pid int
		if err := pg(tx).QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
			return err
		}
		crashes.Add(1)
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return tx.Exec(ctx, "select pg_sleep(10)")
	})
	rt := b.Running(kit.Quick, deadly)
	b.Reaches(rt, "p", 5)
	b.InTime("the rebuild fails", func() {
		err := rt.Rebuild(b.Ctx, millrace.ProjectionID{Name: "p"}, admin.ResetOptions{})
		if n := crashes.Load(); err == nil || n != 5 {
			t.Errorf("after %d crashes, the rebuild returned %v", n, err)
		}
		if err != nil && strings.Contains(err.Error(), "pending") {
			t.Errorf("the rebuild returned %v", err)
		}
	})
	b.Append("s", 1)
	b.Eventually("it goes on", func() bool {
		status, err := rt.Status(b.Ctx, admin.StatusFilter{})
		return err == nil && status.Projection(millrace.ProjectionID{Name: "p"}).Checkpoint >= 6
	})
	b.Verify("p")
}

// Readers prepared their queries before a swap that changes the columns. A "select *" fails once. A query that names
// its columns does not fail.
func TestPreparedReadersAfterASwapToOtherColumns(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.exec("create table model_2 (position bigint, stream text); create table model_1 (position bigint); create view model as select * from model_1")
	b.Append("s", 5)
	rt := b.Running(kit.Quick, millrace.Projection{Name: "v", Handler: b.Store.Batch(kit.Nothing)},
		millrace.Projection{Name: "v", Version: 2,
			Handler: b.Store.Batch(kit.Nothing),
			Swap:    b.Store.Hook(kit.Exec("drop view model; create view model as select stream, position from model_2"))})
	b.Reaches(rt, "v@2", 5)
	reader, err := b.store.Pool().Acquire(b.Ctx)
	b.Must(err)
	defer reader.Release()
	read := func(columns string) error {
		_, err := reader.Exec(b.Ctx, "select "+columns+" from model where $1", true)
		return err
	}
	b.Must(errors.Join(read("*"), read("position")))
	b.Must(rt.Swap(b.Ctx, millrace.ProjectionID{Name: "v@2"}, admin.SwapOptions{}))
	b.Must(read("position"))
	var failed *pgconn.PgError
	if err := read("*"); !errors.As(err, &failed) || failed.Code != "0A000" {
		t.Errorf("the first query returned %v", err)
	}
	b.Must(read("*"))
}
