package engine

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/projection"
)

// TenantFilter selects the tenants for which a projection runs. The zero value selects all. It must not be changed.
type TenantFilter struct {
	entries  []string
	names    map[string]bool // the tenants of the entries that are no patterns
	patterns []string
}

// NewTenantFilter returns the filter that selects the tenants that match one of the patterns of path.Match. Without
// entries it selects all. An entry that is no valid pattern matches no tenant.
func NewTenantFilter(entries []string) TenantFilter {
	f := TenantFilter{entries: slices.Sorted(slices.Values(entries)), names: make(map[string]bool)}
	for _, entry := range f.entries {
		if name, ok := literal(entry); ok {
			f.names[name] = true
		} else {
			f.patterns = append(f.patterns, entry)
		}
	}
	return f
}

// Entries returns the patterns in order, none if the filter selects all tenants.
func (f TenantFilter) Entries() []string { return f.entries }

// All reports whether the filter selects all tenants.
func (f TenantFilter) All() bool { return len(f.entries) == 0 }

// Matches reports whether the filter selects a tenant. An empty tenant means DefaultTenant.
func (f TenantFilter) Matches(tenant string) bool {
	if f.All() {
		return true
	}
	tenant = FullID(projection.ID{Tenant: tenant}).Tenant
	return f.names[tenant] || slices.ContainsFunc(f.patterns, func(pattern string) bool {
		matches, err := path.Match(pattern, tenant)
		return matches && err == nil
	})
}

// ExactTenant returns the pattern that matches only the tenant of that name.
func ExactTenant(name string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(name)
}

// literal returns the only tenant that a pattern matches. It returns false if the pattern has wildcards or is not
// valid.
func literal(pattern string) (name string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*', '?', '[':
			return "", false
		case '\\':
			i++
			if i == len(pattern) {
				return "", false
			}
		}
		b.WriteByte(pattern[i])
	}
	return b.String(), true
}

// ValidateTenants returns an error for the first entry that is empty, not a pattern, a repetition, or unable to match
// any tenant. validTenant returns an error if no tenant can have that name.
func ValidateTenants(entries []string, validTenant func(name string) error) error {
	const field = "Projection.Tenants"
	seen := make(map[string]bool, len(entries))
	for _, entry := range entries {
		if entry == "" {
			return errors.New(field + " must not contain an empty entry; the default tenant is named " +
				projection.DefaultTenant)
		}
		if err := valid.Text(field+": pattern", entry); err != nil {
			return err
		}
		if _, err := path.Match(entry, ""); err != nil {
			return fmt.Errorf("%s: %s is not a pattern of path.Match; ExactTenant returns the pattern for a name",
				field, excerpt.Quoted(entry))
		}
		if seen[entry] {
			return fmt.Errorf("%s must not contain an entry twice: %s", field, excerpt.Quoted(entry))
		}
		seen[entry] = true
		if name, ok := literal(entry); ok {
			if err := validTenant(name); err != nil {
				return fmt.Errorf("%s: %w", field, err)
			}
		}
	}
	return nil
}

// FiltersOf returns the filters of projections. names and entries are in pairs, with one for each entry of a filter. It
// returns nil if there are none.
func FiltersOf(names, entries []string) map[string]TenantFilter {
	byName := make(map[string][]string)
	for i, name := range names {
		byName[name] = append(byName[name], entries[i])
	}
	var filters map[string]TenantFilter
	for name, entries := range byName {
		if filters == nil {
			filters = make(map[string]TenantFilter)
		}
		filters[name] = NewTenantFilter(entries)
	}
	return filters
}
