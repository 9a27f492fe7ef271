// Package rename decides how the names of a tenant's projections, and the retired names that lead to them, change when
// a projection is renamed, forgotten or created again. It is pure code; the stores carry the changes out.
package rename

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/excerpt"
	"github.com/millrace-go/millrace/projection"
	"github.com/millrace-go/millrace/tenancy"
)

// Names are the names of a tenant's projections, as they are stored, with versions. Operations are the kinds of the
// open operations, by names of projections. Key is the tenant's key, and Active reports whether the tenant is active or
// paused.
type Names struct {
	Key        int32
	Active     bool
	Existing   map[string]bool
	Retired    map[string]*engine.Retired
	Operations map[string]string
}

// Operation is the reason by which Add knows the name of a projection with an open operation. The successor is its
// kind. Tenant is that of the tenant itself: the name is its key, and the successor its state.
const (
	Operation engine.RetiredReason = "operation"
	Tenant    engine.RetiredReason = "tenant"
)

// Add adds a name to those of its tenant. A name without a reason exists. See also Operation and Tenant.
func Add(names map[string]Names, r engine.Retired) {
	of, known := names[r.Tenant]
	if !known {
		of = Names{
			Existing: make(map[string]bool), Retired: make(map[string]*engine.Retired),
			Operations: make(map[string]string),
		}
		names[r.Tenant] = of
	}
	switch r.Reason {
	case "":
		of.Existing[r.Name] = true
	case Operation:
		of.Operations[r.Name] = r.Successor
	case Tenant:
		key, _ := strconv.ParseInt(r.Name, 10, 32) // a number, by the statement
		of.Key, of.Active = int32(key), r.Successor == string(tenancy.Active)
		names[r.Tenant] = of
	default:
		of.Retired[r.Name] = &r
	}
}

// Move is a projection that gets another name.
type Move struct{ From, To string }

// Change is what changes. The names in Restored are retired no more. Those in Retired are retired now, or lead to
// another successor.
type Change struct {
	Moves    []Move
	Restored []string
	Retired  []*engine.Retired
}

// Rename returns how all versions of a projection get another name. It returns an empty change if they have it already.
func (n Names) Rename(r engine.Rename) (change Change, err error) {
	moved := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(n.Existing)) {
		switch base, version := (projection.ID{Name: name}).Version(); base {
		case r.From:
			to := projection.VersionName(r.To, version)
			moved[name] = to
			change.Moves = append(change.Moves, Move{name, to})
		case r.To:
			err = fmt.Errorf("%w: %s", projection.ErrExists, excerpt.Quoted(name))
		}
	}
	if len(moved) == 0 {
		return Change{}, n.notRenamed(r)
	}
	if err != nil {
		return Change{}, err
	}
	for _, m := range change.Moves {
		before := n.Retired[m.To]
		switch {
		case before == nil:
		case before.Reason == engine.Forgotten, moved[before.Successor] != "":
			change.Restored = append(change.Restored, m.To)
		default:
			return Change{}, before
		}
	}
	retire := make(map[string]*engine.Retired)
	for _, old := range n.Retired {
		to := moved[old.Successor]
		if to == "" {
			continue
		}
		if old.Name != to {
			retire[old.Name] = &engine.Retired{Tenant: r.Tenant, Name: old.Name, Reason: old.Reason, Successor: to}
		}
		// Nodes of the new name may register a version that was replaced.
		if base, version := (projection.ID{Name: old.Name}).Version(); base == r.From && old.ByVersion() {
			name := projection.VersionName(r.To, version)
			retire[name] = &engine.Retired{Tenant: r.Tenant, Name: name, Reason: old.Reason, Successor: to}
		}
	}
	for from, to := range moved {
		retire[from] = &engine.Retired{Tenant: r.Tenant, Name: from, Reason: engine.Renamed, Successor: to}
	}
	for _, name := range slices.Sorted(maps.Keys(retire)) {
		change.Retired = append(change.Retired, retire[name])
	}
	return change, nil
}

// ForgetUnused is Forget. It returns projection.ErrInUse if another version of the projection has an open operation,
// which may hold this one.
func (n Names) ForgetUnused(tenant, name string) (Change, error) {
	change, err := n.Forget(tenant, name)
	if err != nil || len(change.Retired) == 0 {
		return change, err
	}
	base, _ := (projection.ID{Name: name}).Version()
	for _, other := range slices.Sorted(maps.Keys(n.Operations)) {
		if other != name && ofAnyVersion(base)(other) {
			return change, fmt.Errorf("%w: an operation is open (%s of %s)",
				projection.ErrInUse, n.Operations[other], excerpt.Quoted(other))
		}
	}
	return change, nil
}

// notRenamed returns why there is nothing to rename. It is nil if the projection has the name already, since the answer
// of a first call may have been lost.
func (n Names) notRenamed(r engine.Rename) error {
	retired := n.Retired[r.From]
	switch {
	case retired == nil:
		return projection.ErrUnknownProjection
	case retired.Reason == engine.Renamed && retired.Successor == r.To:
		return nil
	}
	return retired
}

// Forget returns how a projection is forgotten. It returns an empty change if it was forgotten already.
func (n Names) Forget(tenant, name string) (change Change, err error) {
	if !n.Existing[name] {
		retired := n.Retired[name]
		switch {
		case retired == nil:
			return change, projection.ErrUnknownProjection
		case retired.Reason == engine.Forgotten:
			return change, nil
		}
		return change, retired
	}
	change.Retired = []*engine.Retired{{Tenant: tenant, Name: name, Reason: engine.Forgotten}}
	for _, old := range n.Retired {
		switch {
		case old.Successor != name:
		case old.Reason == engine.Unused: // it may begin, since it never ran
			change.Restored = append(change.Restored, old.Name)
		default:
			change.Retired = append(change.Retired,
				&engine.Retired{Tenant: tenant, Name: old.Name, Reason: engine.Forgotten})
		}
	}
	return change, nil
}

// Replace returns how a version of a projection takes the place of an earlier one.
func (n Names) Replace(tenant, earlier, version string) (change Change) {
	change.Retired = []*engine.Retired{{Tenant: tenant, Name: earlier, Reason: engine.Replaced, Successor: version}}
	for _, old := range n.Retired {
		if old.Successor == earlier {
			change.Retired = append(change.Retired,
				&engine.Retired{Tenant: tenant, Name: old.Name, Reason: old.Reason, Successor: version})
		}
	}
	return change
}

// Unused returns the changes for those of these renames that are possible, by tenant. It leaves out projections that a
// living node registers under an old name.
func Unused(renames []engine.Rename, names map[string]Names, nodes []engine.NodeRow) map[string]Change {
	changes := make(map[string]Change)
	for _, r := range renames {
		of, known := names[r.Tenant]
		if !known || Used(nodes, r) {
			continue
		}
		change, err := of.Rename(r)
		if err == nil && len(change.Moves) > 0 {
			changes[r.Tenant] = changes[r.Tenant].and(change)
			names[r.Tenant] = of.after(change)
		}
	}
	return changes
}

// Used reports whether a living node registers the old name, with any version.
func Used(nodes []engine.NodeRow, r engine.Rename) bool {
	return len(usersOf(nodes, r.Tenant, ofAnyVersion(r.From))) > 0
}

// and returns one change that makes both changes. No name may be in both.
func (c Change) and(other Change) Change {
	return Change{
		append(c.Moves, other.Moves...), append(c.Restored, other.Restored...), append(c.Retired, other.Retired...),
	}
}

// after returns the names after a change.
func (n Names) after(c Change) Names {
	next := Names{n.Key, n.Active, maps.Clone(n.Existing), maps.Clone(n.Retired), n.Operations}
	for _, m := range c.Moves {
		delete(next.Existing, m.From)
		next.Existing[m.To] = true
	}
	for _, name := range c.Restored {
		delete(next.Retired, name)
	}
	for _, r := range c.Retired {
		next.Retired[r.Name] = r
	}
	return next
}

// InUse returns projection.ErrInUse if living nodes register a projection, or own leases of it.
func InUse(nodes []engine.NodeRow, id projection.ID, owners []string) error {
	users := usersOf(nodes, id.Tenant, func(name string) bool { return name == id.Name })
	var holders []string
	for _, n := range nodes {
		if slices.Contains(owners, n.ID) {
			holders = append(holders, named(n))
		}
	}
	switch {
	case len(users) > 0:
		return fmt.Errorf("%w: registered by %s", projection.ErrInUse, listed(users))
	case len(holders) > 0:
		return fmt.Errorf("%w: its lease is held by %s", projection.ErrInUse, listed(holders))
	}
	return nil
}

// usersOf returns the living nodes that register a projection of a tenant under a name that matches.
func usersOf(nodes []engine.NodeRow, tenant string, match func(name string) bool) (users []string) {
	for _, n := range nodes {
		if n.Alive && slices.ContainsFunc(n.Projections,
			func(name string) bool { return match(name) && n.Knows(tenant, name) }) {
			users = append(users, named(n))
		}
	}
	return users
}

func named(n engine.NodeRow) string { return fmt.Sprintf("%s (%s)", excerpt.Of(n.Name), n.ID) }

// listed returns the first of many nodes.
func listed(nodes []string) string {
	const most = 10
	slices.Sort(nodes)
	if rest := len(nodes) - most; rest > 0 {
		nodes = append(nodes[:most], fmt.Sprintf("%d more", rest))
	}
	return strings.Join(nodes, ", ")
}

// ofAnyVersion returns a function that matches the stored names of all versions of a projection.
func ofAnyVersion(of string) func(name string) bool {
	return func(name string) bool {
		base, _ := projection.ID{Name: name}.Version()
		return base == of
	}
}
