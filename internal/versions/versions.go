// Package versions decides whether a version of a projection may take the place of an earlier one.
package versions

import (
	"fmt"
	"slices"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/partition"
	"github.com/millrace-go/millrace/projection"
)

// MaxSearched is the largest distance behind the earlier version at which a store searches for events that concern the
// version. Further behind, it counts as missing some.
const MaxSearched = 100_000

// Partition is a partition of a version, as the store has it.
type Partition struct {
	Row int32
	// Name is the stored name of the version.
	Name  string
	Slots partition.Range
	// Checkpoint is the checkpoint of the partition. Reached is the highest position up to which it may have handled
	// events. It may be above Checkpoint if an earlier partition handled some of its streams further.
	Checkpoint, Reached int64
	// Paused reports whether a user paused the projection, or its tenant does not run.
	Paused bool
	// Failed is why the projection waits for a person. It is empty if it does not.
	Failed string
	Parked int64
}

// State is a version of a projection of one tenant, and the earlier version that readers use.
type State struct {
	ID projection.ID
	// Earlier is the stored name of the earlier version. It is empty if there is none.
	Earlier string
	// Missing reports whether the version may have to handle events up to Target.
	Missing bool
	// Succeeds reports whether the version has replaced an earlier one. Replaced reports whether readers used that
	// earlier version before.
	Succeeds, Replaced bool

	version, earlier []Partition
}

// Earlier returns the stored names of the versions before a version.
func Earlier(id projection.ID) []string {
	names := Names(id)
	return names[:len(names)-1]
}

// Names returns the stored names of a version and all earlier ones, its own last.
func Names(id projection.ID) []string {
	name, version := id.Version()
	names := make([]string, version)
	for i := range names {
		names[i] = projection.VersionName(name, i+1)
	}
	return names
}

// Of returns the state of a version, given the partitions of Names. It returns projection.ErrUnknownProjection if the
// version has none, and an error if several earlier versions have some.
func Of(id projection.ID, partitions []Partition) (State, error) {
	s := State{ID: id}
	for _, p := range partitions {
		switch {
		case p.Name == id.Name:
			s.version = append(s.version, p)
		case s.Earlier == "" || s.Earlier == p.Name:
			s.Earlier = p.Name
			s.earlier = append(s.earlier, p)
		default:
			return s, fmt.Errorf("%w: %s and %s", projection.ErrSeveralVersions,
				excerpt.Quoted(s.Earlier), excerpt.Quoted(p.Name))
		}
	}
	if len(s.version) == 0 {
		return s, projection.ErrUnknownProjection
	}
	s.Missing = len(s.Lagging()) > 0
	return s, nil
}

// Target is the position that the version must have reached. The earlier version shows no events above it to readers.
func (s State) Target() (target int64) {
	for _, p := range s.earlier {
		target = max(target, p.Reached)
	}
	return target
}

// Checkpoint is the lowest checkpoint of the version.
func (s State) Checkpoint() int64 {
	return slices.MinFunc(s.version, func(a, b Partition) int { return int(a.Checkpoint - b.Checkpoint) }).Checkpoint
}

// Behind is by how many positions the version is behind the earlier one.
func (s State) Behind() int64 { return max(0, s.Target()-s.Checkpoint()) }

// Lagging returns the partitions of the version whose checkpoints are below Target. They may nevertheless have handled
// all events up to it that concern them.
func (s State) Lagging() (lagging []Partition) {
	target := s.Target()
	for _, p := range s.version {
		if p.Checkpoint < target {
			lagging = append(lagging, p)
		}
	}
	return lagging
}

// Rows returns the rows of the version, and those of the earlier one.
func (s State) Rows() (version, earlier []int32) { return rows(s.version), rows(s.earlier) }

func rows(partitions []Partition) []int32 {
	rows := make([]int32, len(partitions))
	for i, p := range partitions {
		rows[i] = p.Row
	}
	return rows
}

// InUse reports whether readers use the version already.
func (s State) InUse() bool { return s.Earlier == "" && s.Succeeds }

// Ready returns an error if readers cannot use the version and further running does not help: it is paused, it has
// failed, or it has parked events that are not allowed.
func (s State) Ready(parkedAllowed bool) error {
	var parked int64
	for _, p := range s.version {
		parked += p.Parked
		switch {
		case p.Paused:
			return fmt.Errorf("%s: %w", excerpt.Quoted(p.Name), projection.ErrPaused)
		case p.Failed != "":
			return fmt.Errorf("%s: %w: %s", excerpt.Quoted(p.Name), projection.ErrFailed, p.Failed)
		}
	}
	if parked > 0 && !parkedAllowed {
		return fmt.Errorf("%s: %w: %d", excerpt.Quoted(s.ID.Name), projection.ErrParkedEvents, parked)
	}
	return nil
}

// Reached returns projection.ErrBehind with the positions if events may be missing in the version.
func (s State) Reached() error {
	if !s.Missing {
		return nil
	}
	return fmt.Errorf("%s: %w: it is at position %d, and %s at %d", excerpt.Quoted(s.ID.Name), projection.ErrBehind,
		s.Checkpoint(), excerpt.Quoted(s.Earlier), s.Target())
}
