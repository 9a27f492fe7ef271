package versions_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/internal/versions"
	"github.com/millrace-go/millrace/projection"
)

var id = projection.ID{Tenant: "a", Name: "p@3"}

// at returns a partition of a version at a checkpoint.
func at(row int32, name string, checkpoint int64) versions.Partition {
	return versions.Partition{Row: row, Name: name, Checkpoint: checkpoint, Reached: checkpoint}
}

func TestNamesAreThoseOfAllVersionsUpToIt(t *testing.T) {
	if names := versions.Names(id); !slices.Equal(names, []string{"p", "p@2", "p@3"}) {
		t.Error(names)
	}
	if names := versions.Names(projection.ID{Name: "p"}); !slices.Equal(names, []string{"p"}) {
		t.Error(names)
	}
}

func TestSlowestPartitionMustReachTheFurthestOfTheEarlierVersion(t *testing.T) {
	passed := at(1, "p", 3)
	passed.Reached = 9 // of a range of slots
	for name, c := range map[string]struct {
		partitions []versions.Partition
		behind     int64
		lagging    int
	}{
		"equal":           {[]versions.Partition{at(1, "p", 5), at(2, "p@3", 5)}, 0, 0},
		"ahead":           {[]versions.Partition{at(1, "p", 5), at(2, "p@3", 7)}, 0, 0},
		"one behind":      {[]versions.Partition{at(1, "p@2", 5), at(2, "p@3", 7), at(3, "p@3", 4)}, 1, 1},
		"both behind":     {[]versions.Partition{at(1, "p", 2), at(2, "p", 8), at(3, "p@3", 7), at(4, "p@3", 1)}, 7, 2},
		"passed range":    {[]versions.Partition{passed, at(2, "p@3", 8)}, 1, 1},
		"without earlier": {[]versions.Partition{at(2, "p@3", 0)}, 0, 0},
	} {
		s, err := versions.Of(id, c.partitions)
		if err != nil || s.Behind() != c.behind || len(s.Lagging()) != c.lagging || s.Missing != (c.lagging > 0) {
			t.Errorf("%s: behind by %d, %d lagging, missing %v, %v", name, s.Behind(), len(s.Lagging()), s.Missing, err)
		}
		if err := s.Reached(); errors.Is(err, projection.ErrBehind) != s.Missing {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVersionThatCannotServeIsRefused(t *testing.T) {
	for what, c := range map[string]struct {
		change  func(p *versions.Partition)
		allowed bool
		want    error
		text    string
	}{
		"paused": {func(p *versions.Partition) { p.Paused = true }, true, projection.ErrPaused, `"p@3"`},
		"failed": {
			func(p *versions.Partition) { p.Failed = "the reason" }, true, projection.ErrFailed, "the reason",
		},
		"parked":         {func(p *versions.Partition) { p.Parked = 7 }, false, projection.ErrParkedEvents, "miss: 9"},
		"parked allowed": {func(p *versions.Partition) { p.Parked = 7 }, true, nil, ""},
		"sound":          {func(*versions.Partition) {}, true, nil, ""},
	} {
		parts := []versions.Partition{at(1, "p", 5), at(2, "p@3", 5), at(3, "p@3", 5)}
		parts[1].Parked = 2
		c.change(&parts[2])
		s, err := versions.Of(id, parts)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Ready(c.allowed); !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if _, err := versions.Of(id, []versions.Partition{at(1, "p", 5)}); !errors.Is(err,
		projection.ErrUnknownProjection) {
		t.Error(err)
	}
	if _, err := versions.Of(id, []versions.Partition{at(1, "p", 5), at(2, "p@2", 5), at(3, "p@3", 5)}); !errors.Is(err,
		projection.ErrSeveralVersions) {
		t.Error(err)
	}
}
