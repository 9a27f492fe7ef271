package millrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/projection"
)

// Rename gives a projection another name in one tenant. It keeps the checkpoints of all partitions and versions, the desired
// state, failures, dead letters with their commands, and delivery tokens. id names the projection without a version.
//
// Rename is one transaction. A batch in progress under the old name cannot commit, so no event is applied twice. Nodes that
// register the new name continue at once. The old name is retired: a node that registers it runs nothing under that name in the
// tenant, and operations on it return projection.ErrRetired. A projection can be renamed again, and also back.
//
// Rename returns projection.ErrUnknownProjection if there is no such projection, and projection.ErrExists if a projection has
// the new name. It returns projection.ErrRetired if the new name leads to another projection. It does nothing if the projection
// has the new name already. Projection.RenamedFrom does the same for all tenants during a deployment.
func (a *Admin) Rename(ctx context.Context, id ProjectionID, name string) error {
	id = engine.FullID(id)
	rename := engine.Rename{Tenant: id.Tenant, From: id.Name, To: name}
	if err := validRename(id, name); err != nil {
		return fmt.Errorf("rename %s: %w", id, err)
	}
	return a.plane.Rename(ctx, rename)
}

func validRename(id ProjectionID, name string) error {
	if err := whole(id); err != nil {
		return err
	}
	if _, version := id.Version(); version > 1 {
		return errors.New("ProjectionID.Name must not name a version, since all versions are renamed together")
	}
	if name == id.Name {
		return errors.New("the new name must differ from the old one")
	}
	if err := (Projection{Name: name}).validName(); err != nil {
		return err
	}
	return valid.Text("Projection.Name", name)
}

// Forget deletes a projection of one tenant that no node registers any more: its checkpoints, dead letters and commands. It does
// not change the read model. The name is retired, so that a node of an older release that starts later does not begin at the
// first event. Admin.Create makes the name usable again. If the projection has versions, id names the version to forget.
//
// Forget returns projection.ErrInUse, and names the nodes, while a living node registers the projection for the tenant or holds
// its lease. It returns projection.ErrUnknownProjection if there is no such projection. It does nothing if the projection was
// forgotten already.
func (a *Admin) Forget(ctx context.Context, id ProjectionID) error {
	id = engine.FullID(id)
	if err := whole(id); err != nil {
		return fmt.Errorf("forget %s: %w", id, err)
	}
	return a.plane.Forget(ctx, id)
}

// Create creates a projection in one tenant, which begins where start says. It is for names that were forgotten, renamed or
// replaced: such a name is no longer retired afterwards. Other projections are created by the nodes that register them, and
// need no Create. The projection has the partitions with which the Admin's runtime registers it, otherwise one. Create does not
// change the tables of its handler.
//
// Create returns projection.ErrExists if the tenant has a projection of that name, and projection.ErrTenantArchived for an
// archived tenant.
func (a *Admin) Create(ctx context.Context, id ProjectionID, start projection.Start) error {
	id = engine.FullID(id)
	name, version := id.Version()
	p := Projection{Name: name, Version: version, Start: start}
	if err := cmp.Or(whole(id), p.validName(), valid.Text("Projection.Name", name), p.validStart()); err != nil {
		return fmt.Errorf("create %s: %w", id, err)
	}
	partitions := 1
	if a.knows(id) {
		partitions = a.runtime.definitions[id.Name].Partitions
	}
	return a.plane.Create(ctx, engine.NewProjection{Tenant: id.Tenant, Name: id.Name, Partitions: partitions, Start: start})
}

// validRenamedFrom returns an error if no projection can have had the name RenamedFrom.
func (p Projection) validRenamedFrom() error {
	if p.RenamedFrom == "" {
		return nil
	}
	if p.RenamedFrom == p.Name {
		return fmt.Errorf("Projection.RenamedFrom must differ from Projection.Name: %s", excerpt.Quoted(p.Name))
	}
	err := cmp.Or((Projection{Name: p.RenamedFrom}).validName(), valid.Text("Projection.Name", p.RenamedFrom))
	if err != nil {
		return fmt.Errorf("Projection.RenamedFrom is no name of a projection: %w", err)
	}
	return nil
}

// validStart returns an error if more than one field of the start is set.
func (p Projection) validStart() error {
	set := 0
	for _, is := range []bool{p.Start.End, p.Start.Position != 0, !p.Start.Time.IsZero()} {
		if is {
			set++
		}
	}
	switch {
	case set > 1:
		return errors.New("Projection.Start must have at most one of End, Position and Time")
	case p.Start.Position < 0:
		return fmt.Errorf("Projection.Start.Position must not be negative: %d", p.Start.Position)
	}
	return nil
}

// validNames returns an error if the renames of registered projections contradict each other.
func validNames(definitions map[string]*engine.Definition) error {
	before, after := make(map[string]string), make(map[string]string)
	names := slices.Sorted(maps.Keys(definitions))
	for _, stored := range names {
		name, _ := ProjectionID{Name: stored}.Version()
		from := definitions[stored].RenamedFrom
		if other, known := before[name]; known && other != from {
			return fmt.Errorf("Projection.RenamedFrom must be the same for all versions of %s: %s and %s", excerpt.Quoted(name), excerpt.Quoted(other), excerpt.Quoted(from))
		}
		before[name] = from
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		from := before[name]
		if from == "" {
			continue
		}
		if _, registered := before[from]; registered {
			return fmt.Errorf("Projection.RenamedFrom of %s must not be registered: %s", excerpt.Quoted(name), excerpt.Quoted(from))
		}
		if other := after[from]; other != "" {
			return fmt.Errorf("Projection.RenamedFrom must differ for %s and %s: %s", excerpt.Quoted(other), excerpt.Quoted(name), excerpt.Quoted(from))
		}
		after[from] = name
	}
	return nil
}

// retired returns which of these names are retired in these tenants. It leaves out a name that the runtime is about to give
// back to its projection because of RenamedFrom.
func (a *Admin) retired(ctx context.Context, tenants, names []string) ([]*engine.Retired, error) {
	retired, err := a.plane.Retired(ctx, tenants, names)
	return slices.DeleteFunc(retired, func(r *engine.Retired) bool {
		successor, _ := ProjectionID{Name: r.Successor}.Version()
		id := ProjectionID{Tenant: r.Tenant, Name: r.Name}
		return r.Reason == engine.Renamed && a.knows(id) && a.runtime.definitions[id.Name].RenamedFrom == successor
	}), err
}
