package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// Rename gives a projection another name in one tenant. It keeps the checkpoints of all partitions and versions, the
// desired state, failures, dead letters with their commands, and delivery tokens. id names the projection without a
// version.
//
// Rename is one transaction. A batch in progress under the old name cannot commit, so no event is applied twice. Nodes
// that register the new name continue at once. The old name is retired: a node that registers it runs nothing under
// that name in the tenant, and operations on it return projection.ErrRetired. A projection can be renamed again, and
// also back.
//
// Rename returns projection.ErrUnknownProjection if there is no such projection, and projection.ErrExists if a
// projection has the new name. It returns projection.ErrRetired if the new name leads to another projection. It does
// nothing if the projection has the new name already. millrace.Projection.RenamedFrom does the same for all tenants
// during a deployment.
func (a *Admin) Rename(ctx context.Context, id projection.ID, name string) error {
	id = engine.FullID(id)
	rename := engine.Rename{Tenant: id.Tenant, From: id.Name, To: name}
	if err := validRename(id, name); err != nil {
		return fmt.Errorf("rename %s: %w", id, err)
	}
	return a.plane.Rename(ctx, rename)
}

func validRename(id projection.ID, name string) error {
	if err := whole(id); err != nil {
		return err
	}
	if _, version := id.Version(); version > 1 {
		return errors.New("ProjectionID.Name must not name a version, since all versions are renamed together")
	}
	if name == id.Name {
		return errors.New("the new name must differ from the old one")
	}
	return engine.ValidName(name, 0)
}

// Forget deletes a projection of one tenant that no node registers any more: its checkpoints, dead letters and
// commands. It does not change the read model. The name is retired, so that a node of an older release that starts
// later does not begin at the first event. Admin.Create makes the name usable again. If the projection has versions, id
// names the version to forget.
//
// Forget returns projection.ErrInUse, and names the nodes, while a living node registers the projection for the tenant
// or holds its lease. It returns projection.ErrUnknownProjection if there is no such projection. It does nothing if the
// projection was forgotten already.
func (a *Admin) Forget(ctx context.Context, id projection.ID) error {
	id = engine.FullID(id)
	if err := whole(id); err != nil {
		return fmt.Errorf("forget %s: %w", id, err)
	}
	return a.plane.Forget(ctx, id)
}

// Create creates a projection in one tenant, which begins where start says. It is for names that were forgotten,
// renamed or replaced: such a name is no longer retired afterwards. Other projections are created by the nodes that
// register them, and need no Create. The projection has the partitions with which the Admin's runtime registers it,
// otherwise one. Create does not change the tables of its handler.
//
// Create returns projection.ErrExists if the tenant has a projection of that name, and tenancy.ErrArchived for an
// archived tenant.
func (a *Admin) Create(ctx context.Context, id projection.ID, start projection.Start) error {
	id = engine.FullID(id)
	name, version := id.Version()
	if err := cmp.Or(whole(id), engine.ValidName(name, version), engine.ValidStart(start)); err != nil {
		return fmt.Errorf("create %s: %w", id, err)
	}
	partitions := 1
	if def := a.waiter.Definition(id); def != nil {
		partitions = def.Partitions
	}
	return a.plane.Create(ctx, engine.NewProjection{Tenant: id.Tenant,
		Name: id.Name, Partitions: partitions, Start: start})
}
