package millrace

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
)

// storedName is the name under which the store keeps this version of the projection.
func (p Projection) storedName() string { return projection.VersionName(p.Name, p.Version) }

// validRenamedFrom returns an error if no projection can have had the name RenamedFrom.
func (p Projection) validRenamedFrom() error {
	if p.RenamedFrom == "" {
		return nil
	}
	if p.RenamedFrom == p.Name {
		return fmt.Errorf("Projection.RenamedFrom must differ from Projection.Name: %s", excerpt.Quoted(p.Name))
	}
	if err := engine.ValidName(p.RenamedFrom, 0); err != nil {
		return fmt.Errorf("Projection.RenamedFrom is no name of a projection: %w", err)
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
			return fmt.Errorf("Projection.RenamedFrom must be the same for all versions of %s: %s and %s",
				excerpt.Quoted(name), excerpt.Quoted(other), excerpt.Quoted(from))
		}
		before[name] = from
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		from := before[name]
		if from == "" {
			continue
		}
		if _, registered := before[from]; registered {
			return fmt.Errorf("Projection.RenamedFrom of %s must not be registered: %s", excerpt.Quoted(name),
				excerpt.Quoted(from))
		}
		if other := after[from]; other != "" {
			return fmt.Errorf("Projection.RenamedFrom must differ for %s and %s: %s", excerpt.Quoted(other),
				excerpt.Quoted(name), excerpt.Quoted(from))
		}
		after[from] = name
	}
	return nil
}
