package projection_test

import (
	"testing"

	"github.com/millrace-go/millrace/projection"
)

func TestVersionIsPartOfTheStoredName(t *testing.T) {
	for stored, want := range map[string]struct {
		name    string
		version int
	}{
		"totals":            {"totals", 1},
		"totals@2":          {"totals", 2},
		"totals@12":         {"totals", 12},
		"totals@9999":       {"totals", 9_999},
		"a@b@3":             {"a@b", 3},
		"totals@":           {"totals@", 1},
		"totals@x":          {"totals@x", 1},
		"@2":                {"@2", 1},
		"totals@0":          {"totals@0", 1},
		"totals@1":          {"totals@1", 1},
		"totals@02":         {"totals@02", 1},
		"totals@+2":         {"totals@+2", 1},
		"totals@10000":      {"totals@10000", 1},
		"totals@9999999999": {"totals@9999999999", 1},
	} {
		name, version := projection.ID{Tenant: "a", Name: stored}.Version()
		if name != want.name || version != want.version {
			t.Errorf("%s: got %s, %d; want %s, %d", stored, name, version, want.name, want.version)
		}
		if back := projection.VersionName(name, version); back != stored {
			t.Errorf("%s: the stored name of %s, %d is %s", stored, name, version, back)
		}
	}
	if name := projection.VersionName("totals", 0); name != "totals" {
		t.Errorf("the stored name of version 0 is %s", name)
	}
}
