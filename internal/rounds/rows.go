package rounds

import (
	"maps"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

const (
	// rowsMost is how many rows of projections one transaction makes at most.
	rowsMost = 1000
	// swapAgain is the pause after a failure of the hook Swap of a later version with which a tenant begins.
	swapAgain = 5 * time.Second
	// listAgain is after which time all tenants are listed again where notifications name those that change.
	listAgain = time.Hour
)

// Rows decides for which tenants a node makes the rows of its projections. It does so in rounds, each of which is an
// Ensure.
type Rows struct {
	tenants    []string // that the node serves, none for all
	registered registered

	// fill are the tenants whose missing rows the next round inserts. From listAll on, a round considers all tenants.
	fill    map[string]bool
	listAll time.Time
	// by name, the tenants whose projections have their rows, and their keys in the store; shared with rounds in
	// progress, so it is replaced and never changed
	ensured     map[string]int32
	incarnation engine.Incarnation     // of the server in which the rows were made; 0 before it is known
	atOnce      int                    // how many rows the next transaction makes
	reported    map[reason]bool        // why projections do not run, as far as it was reported
	waiting     map[engine.Rename]bool // renames that wait for the nodes of an earlier release
	unbegun     map[string]Unbegun     // by name, the tenants whose hooks failed; never changed
}

// Unbegun is a version with which a tenant cannot begin, since its hook has failed since that time.
type Unbegun struct {
	engine.SwapFailure
	Since time.Time
	again time.Time // when it is tried again
}

// reason says why a projection does not run: its name is retired for a reason, or it waits for the nodes of its earlier
// name.
type reason struct{ projection, retired, earlier string }

// NewRows returns the Rows of a node. operated also has the projections whose operations the node carries out without
// running them: they get rows, too.
func NewRows(node, operated engine.Node, definitions map[string]*engine.Definition) *Rows {
	return &Rows{tenants: node.Tenants, registered: registered{operated, definitions}, fill: make(map[string]bool),
		ensured: make(map[string]int32), atOnce: rowsMost, reported: make(map[reason]bool),
		waiting: make(map[engine.Rename]bool)}
}

// Named makes the next round look at those of the tenants that the node serves.
func (r *Rows) Named(tenants map[string]bool) {
	for tenant := range tenants {
		if len(r.tenants) == 0 || slices.Contains(r.tenants, tenant) {
			r.fill[tenant] = true
		}
	}
}

// ListAll makes the next round look at all tenants.
func (r *Rows) ListAll() { r.listAll = time.Time{} }

// Seen records the incarnation of the server, 0 if it is not known. It reports whether the rows that this node made may
// be lost, since the server has another incarnation. The next round then makes those that are missing.
func (r *Rows) Seen(in engine.Incarnation) (lost bool) {
	if in == 0 || in == r.incarnation {
		return false
	}
	lost, r.incarnation = r.incarnation != 0, in
	if lost {
		r.ensured = make(map[string]int32)
		r.ListAll()
	}
	return lost
}

// Gone is called when a row of a tenant's projections does not exist any more: the projection has other partitions now,
// or the tenant was removed, and may have been created again. The next round makes the rows that are missing, in one
// statement for the tenant. Gone reports false if the next round considers the tenant anyway.
func (r *Rows) Gone(tenant string) bool {
	if r.ensured[tenant] == 0 {
		return false
	}
	r.ensured = maps.Clone(r.ensured)
	delete(r.ensured, tenant)
	r.fill[tenant] = true
	return true
}

// Conditions are those under which a round begins.
type Conditions struct {
	// Resyncs reports whether the search of this round reads the owned leases, and so finds what it may have missed.
	Resyncs bool
	// Pooled reports that no notifications arrive. Interval is the time between two searches then.
	Pooled   bool
	Interval time.Duration
	// Members are the other nodes.
	Members []engine.Member
}

// Begin begins a round. It is for all tenants if such a round is due, and otherwise for tenants that notifications
// named.
func (r *Rows) Begin(now time.Time, c Conditions) *Ensure {
	e := &Ensure{registered: r.registered, ensured: r.ensured, unbegun: r.unbegun, incarnation: r.incarnation,
		atOnce: r.atOnce, changed: r.fill, Names: r.tenants, Renames: r.unused(c.Members)}
	if now.Before(r.listAll) && !c.Resyncs {
		e.Names = slices.AppendSeq([]string{}, maps.Keys(r.fill))
	} else {
		r.listAll = now.Add(r.listAfter(c))
	}
	r.fill = make(map[string]bool)
	if len(e.Renames) > 0 {
		e.ensured = maps.Clone(e.ensured)
		for _, rename := range e.Renames {
			delete(e.ensured, rename.Tenant)
			if e.Names != nil {
				e.Names = append(slices.Clip(e.Names), rename.Tenant)
			}
		}
	}
	return e
}

// listAfter returns after which time all tenants are listed again, beside the searches that read all owned leases.
// Where no notifications arrive, or a hook failed, that is in each search. Otherwise notifications name the tenants
// that change, and a new session lists all.
func (r *Rows) listAfter(c Conditions) time.Duration {
	if c.Pooled || len(r.unbegun) > 0 {
		return c.Interval / 2
	}
	return listAgain
}

// unused returns those of the waiting renames for which no other node is known to register an earlier name. The store
// checks that again.
func (r *Rows) unused(members []engine.Member) (renames []engine.Rename) {
	if len(r.waiting) == 0 {
		return nil
	}
	users := make(map[string][]engine.Member) // by names without versions
	for _, m := range members {
		for _, name := range m.Projections {
			users[base(name)] = append(users[base(name)], m)
		}
	}
	for rename := range r.waiting {
		if !slices.ContainsFunc(users[rename.From], func(m engine.Member) bool { return registers(m, rename) }) {
			renames = append(renames, rename)
		}
	}
	return renames
}

// registers reports whether a node runs a version of the earlier name for the tenant of a rename.
func registers(m engine.Member, r engine.Rename) bool {
	return slices.ContainsFunc(m.Projections, func(name string) bool {
		return base(name) == r.From && m.Knows(r.Tenant, name)
	})
}

// base returns the name of a projection without its version.
func base(name string) string {
	base, _ := projection.ID{Name: name}.Version()
	return base
}

// registered are the projections that get rows. It never changes.
type registered struct {
	node        engine.Node
	definitions map[string]*engine.Definition
}

// of returns the projections that the node can run for a tenant, and how many rows they have if they are new.
func (r registered) of(tenant string) (list []engine.NewProjection, rows int) {
	for _, name := range r.node.Projections {
		if r.node.Filters[name].Matches(tenant) {
			def := r.definitions[name]
			list = append(list, def.New(projection.ID{Tenant: tenant, Name: name}))
			rows += max(1, def.Partitions)
		}
	}
	return list, rows
}
