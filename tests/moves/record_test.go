package moves_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace/admin"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/tuning"
	"github.com/millrace-go/millrace/tenancy"
)

func (p *place) unarchive(t testing.TB, tenant string) error {
	t.Helper()
	if p.file != nil {
		return p.file.UnarchiveTenant(testContext(t), tenant)
	}
	return p.pg.UnarchiveTenant(testContext(t), tenant)
}

func (p *place) drop(t testing.TB, tenant string) {
	t.Helper()
	if p.file != nil {
		noError(t, p.file.DropTenant(testContext(t), tenant, tenancy.DropOptions{Confirm: tenant}))
		return
	}
	noError(t, p.pg.DropTenant(testContext(t), tenant, tenancy.DropOptions{Confirm: tenant}))
}

// mustBeMoved fails unless err says that acme has moved, or may have moved, to a store. It returns the name of the
// store.
func mustBeMoved(t testing.TB, err error, to *place, ended bool) (target string) {
	t.Helper()
	var moved *tenancy.MovedError
	if !errors.As(err, &moved) || !errors.Is(err, tenancy.ErrMoved) {
		t.Fatalf("error %v", err)
	}
	name := "millrace"
	if to.file != nil {
		name = to.path
	} else if to.schema != "" {
		name = to.schema
	}
	if !strings.Contains(moved.Target, name) || moved.BeganAt.IsZero() || moved.MovedAt.IsZero() == ended ||
		!strings.Contains(err.Error(), moved.Target) {
		t.Errorf("error %v, want one that names %s", err, name)
	}
	return moved.Target
}

// beginMove moves acme in a process of its own, until that waits in the transaction of the target. kill kills the
// process.
func beginMove(t *testing.T, from, to *place) (kill func()) {
	t.Helper()
	if from.file == nil && to.file == nil && to.schema != from.schema {
		t.Skip("the child opens the usual schema")
	}
	mark := filepath.Join(t.TempDir(), "mark")
	child := exec.CommandContext(testContext(t), os.Args[0])
	child.Stderr = os.Stderr
	child.Env = append(os.Environ(), "MILLRACE_MOVE_CHILD="+from.path+"\n"+to.path, "MILLRACE_MOVE_MARK="+mark)
	noError(t, child.Start())
	waitForFile(t, mark)
	return func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}
}

// The process of a move is killed before the commit. Its tenant is archived in the source, and the target has nothing
// of it. A repeat makes it active there, as it was. Meanwhile, and afterwards, it neither moves to another store, nor
// becomes active in the source.
func TestMoveIsRepeatedAfterTheDeathOfItsProcess(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened))(t)
		kill := beginMove(t, from, to)
		other := newFile(t)
		refused := func() {
			t.Helper()
			opts := keep()
			opts.Active = true
			_, err := admin.MoveTenant(ctx, from, other, "acme", opts)
			mustBeMoved(t, err, to, false)
			other.mustLack(t, "acme")
			from.mustBe(t, "acme", tenancy.Archived)
		}
		refused()
		kill()
		to.mustLack(t, "acme")
		refused()
		mustBeMoved(t, from.unarchive(t, "acme"), to, false)
		if report := moveIt(t, from, to, "acme", keep()); report.Earlier || report.State != tenancy.Active {
			t.Errorf("report %+v", report)
		}
		to.mustBe(t, "acme", tenancy.Active)
		from.mustBe(t, "acme", tenancy.Archived)
	})
}

// A tenant that has moved stays archived in the source, and moves nowhere else, until the caller says that the target
// does not have it.
func TestMovedTenantStaysInItsTarget(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened))(t)
		if err := admin.AbandonMove(ctx, from, "acme", "another"); err == nil ||
			!strings.Contains(err.Error(), "no record of a move") {
			t.Errorf("error %v", err)
		}
		moveIt(t, from, to, "acme", keep())
		target := mustBeMoved(t, from.unarchive(t, "acme"), to, true)
		_, err := admin.MoveTenant(ctx, from, newFile(t), "acme", keep())
		mustBeMoved(t, err, to, true)
		if !moveIt(t, from, to, "acme", keep()).Earlier {
			t.Error("the repeat has moved it")
		}
		// The target may have moved it on.
		to.drop(t, "acme")
		_, err = admin.MoveTenant(ctx, from, to, "acme", keep())
		mustBeMoved(t, err, to, true)
		to.mustLack(t, "acme")
		mustBeMoved(t, admin.AbandonMove(ctx, from, "acme", target+"?"), to, true)
		from.mustBe(t, "acme", tenancy.Archived)

		noError(t, admin.AbandonMove(ctx, from, "acme", target))
		from.mustBe(t, "acme", tenancy.Active)
		other := newFile(t)
		moveIt(t, from, other, "acme", keep())
		other.mustBe(t, "acme", tenancy.Active)
	})
}

// A tenant that was archived stays so, in the target and after an abandoned move. Then it can be unarchived.
func TestArchivedTenantMovesAsArchived(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened))(t)
		from.archive(t, "acme")
		if report := moveIt(t, from, to, "acme", keep()); report.State != tenancy.Archived {
			t.Errorf("report %+v", report)
		}
		to.mustBe(t, "acme", tenancy.Archived)
		noError(t, admin.AbandonMove(ctx, from, "acme", mustBeMoved(t, from.unarchive(t, "acme"), to, true)))
		from.mustBe(t, "acme", tenancy.Archived)
		noError(t, from.unarchive(t, "acme"))
		from.mustBe(t, "acme", tenancy.Active)
		noError(t, to.unarchive(t, "acme")) // it has come there
	})
}

// Dropping a tenant that has moved away deletes the record of the move. If the tenant moves back, it can move away
// again.
func TestDroppedTenantHasNoRecordOfItsMove(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		from.create(t, "acme")
		moveIt(t, from, to, "acme", keep()) // without events, the target is empty, and so is the source
		moveIt(t, to, from, "acme", keep())
		from.archive(t, "acme")
		noError(t, from.unarchive(t, "acme"))
		to.drop(t, "acme")
		to.create(t, "acme")
		to.archive(t, "acme")
		noError(t, to.unarchive(t, "acme"))
		moveIt(t, to, newFile(t), "acme", keep())
	})
}

// A tenant without events has moved, with a projection. The repeat of the move knows that.
func TestMoveWithoutEventsIsRecognised(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		from.create(t, "acme")
		var h handled
		must(h.node(t, from, "plain").RunUntilIdle(testContext(t)))(t)
		if report := moveIt(t, from, to, "acme", keep()); report.Earlier || report.Rows["projections"] != 1 {
			t.Errorf("report %+v", report)
		}
		if !moveIt(t, from, to, "acme", keep()).Earlier {
			t.Error("the repeat has moved it")
		}
		must(to.tenant(t, "acme").Append(testContext(t), "s", event.NoStream, happened))(t)
		if !moveIt(t, from, to, "acme", keep()).Earlier {
			t.Error("the repeat has moved it after an append")
		}
	})
}

// A move is abandoned while it runs, by a caller who does not know that. It ends, and the tenant stays archived in the
// source.
func TestMoveThatEndsMeanwhileIsNotAbandoned(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened))(t)
		reached, open := make(chan struct{}), make(chan struct{})
		opts := keep()
		opts.ReadModels = to.hook(func() error { close(reached); <-open; return nil })
		var both sync.WaitGroup
		both.Go(func() { moveIt(t, from, to, "acme", opts) })
		<-reached
		target := from.column(t, `select store from {control}.moves where tenant = $1`, "acme")
		both.Go(func() {
			if err := admin.AbandonMove(ctx, from, "acme", target[0]); err == nil ||
				!strings.Contains(err.Error(), "gone on meanwhile") {
				t.Errorf("error %v", err)
			}
		})
		from.waits(t, 1)
		close(open)
		both.Wait()
		from.mustBe(t, "acme", tenancy.Archived)
	})
}

// Two calls move the same tenant, and both fail. The call that began the move leaves the tenant archived, since it
// cannot know whether the other call has moved it.
func TestMoveThatASecondCallHasTakenUpIsNotGivenUp(t *testing.T) {
	t.Parallel()
	onAllDirections(t, func(t *testing.T, from, to *place) {
		ctx := testContext(t)
		from.create(t, "acme")
		source, target := control.On(from.Engine()), control.On(to.Engine())
		begin := func(active bool) *control.Move {
			t.Helper()
			m := &control.Move{Tenant: "acme"}
			must(source.Prepare(ctx, target, m, active, false))(t)
			noError(t, from.Engine().DecideState(ctx, "acme", m.Leave))
			return m
		}
		first := begin(true)
		noError(t, from.Engine().DecideState(ctx, "acme", first.Return))
		from.mustBe(t, "acme", tenancy.Active)

		second := begin(true)
		noError(t, from.Engine().DecideState(ctx, "acme", first.Return)) // its move is forgotten
		from.mustBe(t, "acme", tenancy.Archived)
		if third := begin(false); third.Begun || third.State != tenancy.Active {
			t.Errorf("the third call %+v", third)
		}
		if err := from.Engine().DecideState(ctx, "acme", second.Return); err == nil ||
			!strings.Contains(err.Error(), "another call has taken up the move") {
			t.Errorf("error %v", err)
		}
		from.mustBe(t, "acme", tenancy.Archived)
		moveIt(t, from, to, "acme", keep())
	})
}

// Another process writes to the file to which a tenant moves, as one does that moves a tenant in the opposite
// direction.
func TestMoveGivesUpIfItsTargetIsTaken(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]*place{"file": newFile(t), "PostgreSQL": newDatabase(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, ctx := newFile(t), testContext(t)
			must(from.create(t, "acme").Append(ctx, "s", event.NoStream, happened))(t)
			from.create(t, "first")
			moveIt(t, from, to, "first", keep()) // makes the table of moves
			taken, release := make(chan struct{}), make(chan struct{})
			var writer sync.WaitGroup
			writer.Go(func() {
				noError(t, openFile(t, to.path).file.InTx(ctx,
					func(context.Context, *sql.Tx) error { close(taken); <-release; return nil }))
			})
			<-taken
			impatient := tuning.Settings{Store: to, MoveWait: time.Second}
			if _, err := admin.MoveTenant(ctx, from, impatient, "acme", keep()); err == nil ||
				!strings.Contains(err.Error(), "perhaps a move in the opposite direction") {
				t.Errorf("error %v", err)
			}
			close(release)
			writer.Wait()
			from.mustBe(t, "acme", tenancy.Active)
			moveIt(t, from, to, "acme", keep())
		})
	}
}
