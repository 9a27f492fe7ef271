package engine_test

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace-go/millrace/internal/engine"
)

func TestTenantFilterSelectsByNamesAndPatterns(t *testing.T) {
	for _, test := range []struct {
		entries []string
		yes, no string
	}{
		{nil, "a b default", ""},
		{[]string{"acme"}, "acme", "acm acmee Acme"},
		{[]string{"eu-*", "us-?"}, "eu- eu-a eu-abc us-a", "eu us- us-ab xeu-a eu-a/b"},
		{[]string{"eu/*"}, "eu/a", "eu eu/a/b"},
		{[]string{"t[0-4]", "t[^a-z]"}, "t0 t4 t9", "ta t"},
		{[]string{`a\*b`, `c\[`}, "a*b c[", `axb a\*b c`},
		{[]string{"default"}, "default", "a"},
		{[]string{"[", `a\`, "b"}, "b", `[ a\ a`},
	} {
		filter := engine.NewTenantFilter(test.entries)
		for _, tenant := range strings.Fields(test.yes) {
			if !filter.Matches(tenant) {
				t.Errorf("%q does not select %q", test.entries, tenant)
			}
		}
		for _, tenant := range strings.Fields(test.no) {
			if filter.Matches(tenant) {
				t.Errorf("%q selects %q", test.entries, tenant)
			}
		}
		if filter.All() != (len(test.entries) == 0) || filter.Matches("") != filter.Matches("default") {
			t.Errorf("%q: all %v, no name %v, default %v", test.entries, filter.All(), filter.Matches(""),
				filter.Matches("default"))
		}
	}
}

func TestTenantFilterKeepsNoReferenceToItsEntries(t *testing.T) {
	entries := []string{"b", "a"}
	filter := engine.NewTenantFilter(entries)
	entries[0] = "c"
	if !filter.Matches("b") || filter.Matches("c") || !slices.Equal(filter.Entries(), []string{"a", "b"}) {
		t.Errorf("%+v", filter)
	}
}

func TestBadEntriesOfTenantsAreRefused(t *testing.T) {
	validTenant := func(name string) error {
		if strings.Contains(name, "!") {
			return errors.New("tenant must not contain !")
		}
		return nil
	}
	for entries, want := range map[string]string{
		"a b c*": "", `a\! b`: "Projection.Tenants: tenant must not contain !", "a!*": "",
		"a  b":   "Projection.Tenants must not contain an empty entry; the default tenant is named default",
		"a [":    `Projection.Tenants: "[" is not a pattern of path.Match; ExactTenant returns the pattern for a name`,
		`a b\`:   `Projection.Tenants: "b\\" is not a pattern`,
		"a b a":  `Projection.Tenants must not contain an entry twice: "a"`,
		"\xff*":  "UTF-8",
		"a*\x00": "NUL",
	} {
		err := engine.ValidateTenants(strings.Split(entries, " "), validTenant)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", entries, err, want)
		}
	}
}

func TestExactTenantSelectsThatTenantAlone(t *testing.T) {
	names := []string{"acme", "a*", "a?", "[a]", "[", `\`, `\*`, `a\`, "**", "a", "ab", "ü*"}
	for _, name := range names {
		filter := engine.NewTenantFilter([]string{engine.ExactTenant(name)})
		for _, other := range names {
			if filter.Matches(other) != (other == name) {
				t.Errorf("%q selects %q: %v", filter.Entries(), other, filter.Matches(other))
			}
		}
	}
}

// FuzzExactTenant checks that the pattern for a name selects that tenant and no other, and that a filter decides as
// path.Match.
func FuzzExactTenant(f *testing.F) {
	for _, name := range []string{"acme", "a*b", "[a-z]", `\`, `a\*`, "?", "ü/*", "[", "a]"} {
		f.Add(name, "acme")
		f.Add(name, "axb")
	}
	f.Fuzz(func(t *testing.T, name, other string) {
		if !utf8.ValidString(name) || !utf8.ValidString(other) || name == "" || other == "" {
			t.Skip()
		}
		exact := engine.NewTenantFilter([]string{engine.ExactTenant(name)})
		if !exact.Matches(name) || exact.Matches(other) != (name == other) {
			t.Errorf("the filter %q selects %q: %v, and %q: %v", exact.Entries(), name, exact.Matches(name), other,
				exact.Matches(other))
		}
		want, err := path.Match(name, other)
		if got := engine.NewTenantFilter([]string{name}).Matches(other); got != (want && err == nil) {
			t.Errorf("the filter %q selects %q: %v, path.Match: %v, %v", name, other, got, want, err)
		}
	})
}

func TestFiltersAreReadInPairs(t *testing.T) {
	filters := engine.FiltersOf([]string{"p", "q", "p"}, []string{"a", "b-*", "c"})
	if len(filters) != 2 || !filters["p"].Matches("a") || !filters["p"].Matches("c") || filters["p"].Matches("b-1") ||
		!filters["q"].Matches("b-1") {
		t.Errorf("%+v", filters)
	}
	if none := engine.FiltersOf(nil, nil); none != nil {
		t.Errorf("without a filter: %+v", none)
	}
}
