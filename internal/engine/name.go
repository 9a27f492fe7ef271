package engine

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/projection"
)

// maxName is how many bytes a stored name has at most.
const maxName = 100

// versioned matches names that end like the stored name of a version.
var versioned = regexp.MustCompile(`@[0-9]+$`)

// ValidName returns an error if no projection can be stored under that name and version.
func ValidName(name string, version int) error {
	stored := projection.VersionName(name, version)
	switch {
	case name == "":
		return errors.New("Projection.Name must be set")
	case version < 0 || version > projection.MaxVersion:
		return fmt.Errorf("Projection.Version must be from 0 to %d: %d", projection.MaxVersion, version)
	case versioned.MatchString(name):
		return fmt.Errorf("Projection.Name must not end in @ and digits, which is how versions are stored (see Projection.Version): %s", excerpt.Quoted(name))
	case len(stored) > maxName && version > 1:
		return fmt.Errorf("Projection.Name with its version must be at most %d bytes: %s", maxName,
			excerpt.Quoted(stored))
	case len(name) > maxName:
		return fmt.Errorf("Projection.Name must be at most %d bytes: %s", maxName, excerpt.Quoted(name))
	}
	return valid.Text("Projection.Name", name)
}

// ValidStart returns an error if more than one field of a start is set.
func ValidStart(start projection.Start) error {
	set := 0
	for _, is := range []bool{start.End, start.Position != 0, !start.Time.IsZero()} {
		if is {
			set++
		}
	}
	switch {
	case set > 1:
		return errors.New("Projection.Start must have at most one of End, Position and Time")
	case start.Position < 0:
		return fmt.Errorf("Projection.Start.Position must not be negative: %d", start.Position)
	}
	return nil
}
