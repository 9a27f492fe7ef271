package millrace

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
)

// maxName is how many bytes a stored name has at most.
const maxName = 100

// versioned matches names that end like the stored name of a version.
var versioned = regexp.MustCompile(`@[0-9]+$`)

// storedName is the name under which the store keeps this version of the projection.
func (p Projection) storedName() string { return projection.VersionName(p.Name, p.Version) }

// validName returns an error if no projection can be stored under the name and version.
func (p Projection) validName() error {
	switch {
	case p.Name == "":
		return errors.New("Projection.Name must be set")
	case p.Version < 0 || p.Version > projection.MaxVersion:
		return fmt.Errorf("Projection.Version must be from 0 to %d: %d", projection.MaxVersion, p.Version)
	case versioned.MatchString(p.Name):
		return fmt.Errorf("Projection.Name must not end in @ and digits, which is how versions are stored (see Projection.Version): %s",
			excerpt.Quoted(p.Name))
	case len(p.storedName()) > maxName && p.Version > 1:
		return fmt.Errorf("Projection.Name with its version must be at most %d bytes: %s", maxName, excerpt.Quoted(p.storedName()))
	case len(p.Name) > maxName:
		return fmt.Errorf("Projection.Name must be at most %d bytes: %s", maxName, excerpt.Quoted(p.Name))
	}
	return nil
}

// knowsLater reports whether the Admin's runtime can run a later version of the projection, with which a tenant may begin.
func (a *Admin) knowsLater(id ProjectionID) bool {
	if a.runtime == nil {
		return false
	}
	a.runtime.mu.Lock()
	names := slices.Collect(maps.Keys(a.runtime.definitions))
	a.runtime.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool {
		later := ProjectionID{Tenant: id.Tenant, Name: name}
		return isLater(later, id) && a.runtime.knows(later)
	})
}

// isLater reports whether an ID names a later version of the same projection.
func isLater(later, id ProjectionID) bool {
	name, version := later.Version()
	earlierName, earlier := id.Version()
	return name == earlierName && version > earlier
}

// hooks returns the hooks of the projection, or an error if the store cannot run one of them.
func (p Projection) hooks(database engine.Database) (hooks engine.Hooks, err error) {
	for _, h := range []struct {
		field string
		hook  Hook
		to    *engine.Hook
		later bool
	}{{"Projection.Reset", p.Reset, &hooks.Reset, false}, {"Projection.Swap", p.Swap, &hooks.Swap, true}, {"Projection.Drop", p.Drop, &hooks.Drop, true}} {
		if h.hook != nil && h.later && p.Version <= 1 {
			return hooks, fmt.Errorf("%s must not be set: it is for Projection.Version from 2 on, which is %d", h.field, p.Version)
		}
		if *h.to, err = hookFor(h.field, h.hook, database); err != nil {
			return hooks, err
		}
	}
	return hooks, nil
}
