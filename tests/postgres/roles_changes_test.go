package postgres_test

import (
	"testing"

	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Each flow of the control plane runs under the role that runs.
func TestChangesRunUnderTheRoleThatRuns(t *testing.T) {
	t.Parallel()
	_, b := newRoles(t, rolesMade["in an empty database"])
	s := b.store.Engine()
	plane := control.On(s)
	list := []engine.NewProjection{
		{Tenant: "default", Name: "p", Partitions: 2}, {Tenant: "default", Name: "q", Partitions: 1},
		{Tenant: "default", Name: "r", Partitions: 1},
	}
	_, err := plane.Ensure(b.Ctx, list)
	b.Must(err)
	id := projection.ID{Tenant: "default", Name: "p"}
	check := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("repartition", plane.Repartition(b.Ctx, id, 3))
	_, err = plane.Reset(b.Ctx, engine.Reset{ID: id})
	check("reset", err)
	check("rename", plane.Rename(b.Ctx, engine.Rename{Tenant: "default", From: "q", To: "q2"}))
	check("rename unused", plane.RenameUnused(b.Ctx, []engine.Rename{{Tenant: "default", From: "q2", To: "q3"}}))
	check("forget", plane.Forget(b.Ctx, projection.ID{Tenant: "default", Name: "r"}))
	check("create", plane.Create(b.Ctx, list[2]))
	check("desired", plane.SetDesiredState(b.Ctx, id, engine.WantPause))
	_, err = plane.PauseEnded(b.Ctx, id)
	check("pause ended", err)
	check("pause", plane.SetTenantDesired(b.Ctx, "default", engine.WantPause))
	_, err = plane.SuspensionEnded(b.Ctx, "default")
	check("suspension", err)
	check("resume", plane.SetTenantDesired(b.Ctx, "default", engine.WantRun))
	letters := b.store.DeadLetters(id)
	_, err = letters.Count(b.Ctx, projection.DeadLetterFilter{})
	check("count", err)
	_, err = letters.Purge(b.Ctx, projection.DeadLetterFilter{All: true}, 0, 10)
	check("purge", err)
}
