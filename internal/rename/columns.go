package rename

import (
	"maps"
	"slices"
)

// Pairs are names of projections and their tenants, in order.
type Pairs struct{ Tenants, Names []string }

func (p *Pairs) add(tenant, name string) {
	p.Tenants, p.Names = append(p.Tenants, tenant), append(p.Names, name)
}

// Columns are changes as arguments of statements. NewNames belongs to Moved, and Reasons and Successors to Retired. Tenants are
// those with changes.
type Columns struct {
	Tenants                  []string
	Moved, Restored, Retired Pairs
	NewNames                 []string
	Reasons, Successors      []string
}

// ColumnsOf returns changes, by tenant, as columns.
func ColumnsOf(changes map[string]Change) (c Columns) {
	for _, tenant := range slices.Sorted(maps.Keys(changes)) {
		change := changes[tenant]
		if len(change.Retired) == 0 {
			continue
		}
		c.Tenants = append(c.Tenants, tenant)
		for _, m := range change.Moves {
			c.Moved.add(tenant, m.From)
			c.NewNames = append(c.NewNames, m.To)
		}
		for _, name := range change.Restored {
			c.Restored.add(tenant, name)
		}
		for _, r := range change.Retired {
			c.Retired.add(tenant, r.Name)
			c.Reasons, c.Successors = append(c.Reasons, string(r.Reason)), append(c.Successors, r.Successor)
		}
	}
	return c
}
