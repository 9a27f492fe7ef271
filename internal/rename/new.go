package rename

import (
	"cmp"
	"slices"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/versions"
	"github.com/millrace-go/millrace/projection"
)

// New are new projections of tenants, by what becomes of them. Of one projection, earlier versions come first.
type New struct {
	// Create are those that get rows.
	Create []engine.NewProjection
	// Begin are later versions whose tenants have no earlier one. Their readers use them from the beginning.
	Begin []engine.NewProjection
	Left  engine.LeftOut
}

// Register decides which of these projections get rows, and adds them to the names. It leaves out tenants that are not
// active, and projections that exist.
func Register(projections []engine.NewProjection, names map[string]Names, nodes []engine.NodeRow) (n New) {
	indexes := make(map[string]index)
	for _, p := range slices.SortedStableFunc(slices.Values(projections), byVersion) {
		of := names[p.Tenant]
		if !of.Active || of.Existing[p.Name] {
			continue
		}
		known, found := indexes[p.Tenant]
		if !found {
			known = of.index()
			indexes[p.Tenant] = known
		}
		base, _ := p.ID().Version()
		retired := of.retiredFor(p)
		switch {
		case p.RenamedFrom != "" && known.bases[p.RenamedFrom]:
			n.Left.Waiting = append(n.Left.Waiting, p)
		case retired != nil:
			n.Left.Retired = append(n.Left.Retired,
				&engine.Retired{Tenant: p.Tenant, Name: p.Name, Reason: retired.Reason, Successor: retired.Successor})
		case p.RenamedFrom != "" && keeps(nodes, p.Rename()):
			n.Left.Waiting = append(n.Left.Waiting, p)
		case !of.follows(p.ID()) && !known.successors[p.Name]:
			n.Begin = append(n.Begin, p)
		default:
			n.Create = append(n.Create, p)
			of.Existing[p.Name], known.bases[base] = true, true
		}
	}
	return n
}

func byVersion(a, b engine.NewProjection) int {
	_, of := a.ID().Version()
	_, other := b.ID().Version()
	return cmp.Compare(of, other)
}

// index has the names of existing projections without their versions, and the successors of retired names.
type index struct{ bases, successors map[string]bool }

func (n Names) index() index {
	i := index{bases: make(map[string]bool), successors: make(map[string]bool)}
	for name := range n.Existing {
		base, _ := projection.ID{Name: name}.Version()
		i.bases[base] = true
	}
	for _, r := range n.Retired {
		i.successors[r.Successor] = true
	}
	return i
}

// retiredFor returns the retired name because of which a new projection is not created: its own, or its earlier one if
// that leads to another projection.
func (n Names) retiredFor(p engine.NewProjection) *engine.Retired {
	if own := n.Retired[p.Name]; own != nil {
		return own
	}
	earlier := n.Retired[p.RenamedFrom]
	if earlier == nil || earlier.Successor == "" || ofAnyVersion(p.Rename().To)(earlier.Successor) {
		return nil
	}
	return earlier
}

// keeps reports whether nodes may still run a projection under its earlier name, or make rows for it. While no node has
// registered, the first one may be of an earlier release.
func keeps(nodes []engine.NodeRow, r engine.Rename) bool { return len(nodes) == 0 || Used(nodes, r) }

// follows reports whether a version is the first one of a projection, or an earlier one exists.
func (n Names) follows(id projection.ID) bool {
	earlier := versions.Earlier(id)
	return len(earlier) == 0 || slices.ContainsFunc(earlier, func(name string) bool { return n.Existing[name] })
}

// Earlier returns the names of a new projection in earlier releases, which are retired when it gets its rows, and adds
// them to the names.
func (n Names) Earlier(p engine.NewProjection) (retired []*engine.Retired) {
	if p.RenamedFrom == "" {
		return nil
	}
	_, version := p.ID().Version()
	for _, name := range []string{p.RenamedFrom, projection.VersionName(p.RenamedFrom, version)} {
		if n.Retired[name] == nil {
			n.Retired[name] = &engine.Retired{Tenant: p.Tenant, Name: name, Reason: engine.Renamed, Successor: p.Name}
			retired = append(retired, n.Retired[name])
		}
	}
	return retired
}

// NeverUsed returns the earlier versions of a version with which a tenant begins. They are retired.
func NeverUsed(id projection.ID) (retired []*engine.Retired) {
	for _, name := range versions.Earlier(id) {
		retired = append(retired, &engine.Retired{Tenant: id.Tenant,
			Name: name, Reason: engine.Unused, Successor: id.Name})
	}
	return retired
}
