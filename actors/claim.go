package actors

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
	"github.com/millrace-go/millrace/internal/rounds"
)

const (
	// claimMost limits the leases of one statement. A search claims all it wants by as many statements as that takes,
	// and the projections of each begin while the next one runs.
	claimMost = 5000
	// searchLimit limits a search in multiples of QueryTimeout, which limits each of its statements.
	searchLimit = 100
)

// claim is the work of one search, outside of the node's actor. A search that failed may have results.
type claim struct {
	deps            *Deps
	trustHeartbeats bool // nodes whose heartbeats expired count as dead

	// ensure is the round of making rows. rowsErr is why it was not completed, and more reports that tenants are left.
	ensure  *rounds.Ensure
	rowsErr error
	more    bool

	// step follows from what is free. With step.Balance, the nodes of fleet share the leases, this node first, and
	// keeps are the leases that this node runs.
	free  ownership.Free
	step  ownership.Step
	fleet []engine.Member
	keeps []engine.LeaseRef
	// ownedRead and claimed are called while the search goes on.
	ownedRead, claimed func(leases []engine.Lease)

	// run sets these. short reports that other nodes were quicker.
	drain  []int32
	short  bool
	orders map[int32]engine.Orders
}

// find makes missing rows and reads which leases are free.
func (c *claim) find(ctx context.Context) error {
	// The projections that have their rows run, whether or not rows are added.
	c.rowsErr = c.makeRows(ctx)
	c.free.Unowned = c.free.Unowned || c.ensure.MadeRows()
	return c.deps.Limiter.Read(ctx, func(ctx context.Context) (err error) {
		began := time.Now()
		c.free.Leases, err = c.deps.Ownership.Free(ctx, c.deps.Node, c.trustHeartbeats, c.free.Unowned)
		c.free.Took = time.Since(began)
		return err
	})
}

// makeRows makes the rows of the node's projections for new tenants, in several transactions. It stops after half of
// QueryTimeout.
func (c *claim) makeRows(ctx context.Context) error {
	if c.ensure.Over() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.deps.Timing.QueryTimeout/2)
	defer cancel()
	for _, renames := range c.ensure.RenamesAtOnce() {
		if err := c.deps.Limiter.Read(ctx,
			func(ctx context.Context) error { return c.deps.Plane.RenameUnused(ctx, renames) }); err != nil {
			return err
		}
	}
	var listed []engine.Tenant
	if err := c.deps.Limiter.Read(ctx, func(ctx context.Context) (err error) {
		listed, err = c.deps.Lists.Tenants(ctx, c.ensure.Names)
		return err
	}); err != nil {
		return err
	}
	c.ensure.Listed(listed, time.Now())
	for c.ensure.More() && ctx.Err() == nil {
		if err := c.makePart(ctx, c.ensure.Next()); err != nil {
			return err
		}
	}
	return nil
}

func (c *claim) makePart(ctx context.Context, part rounds.Part) (err error) {
	var left engine.LeftOut
	if len(part.Projections) > 0 {
		err = c.deps.Limiter.Read(ctx, func(ctx context.Context) (err error) {
			left, err = c.deps.Plane.Ensure(ctx, part.Projections)
			return err
		})
	}
	return c.ensure.Made(part, left, err)
}

// run reads the owned leases, claims what the balance says, and reads the orders. What it reads and claims is reported
// at once. The owned leases are read before any is claimed: a node that starts owns none, and they would all be read
// twice.
func (c *claim) run(ctx context.Context) (err error) {
	if c.step.ReadOwned {
		owned, err := oneStatement(ctx, c.deps, func(ctx context.Context) ([]engine.Lease, error) {
			return c.deps.Ownership.Owned(ctx, c.deps.Node)
		})
		if err != nil {
			return err
		}
		c.pauseRenamed(owned)
		c.ownedRead(owned)
	}
	if c.step.Balance {
		if err := c.claimShare(ctx); err != nil {
			return err
		}
	}
	if c.step.ReadOrders {
		c.orders, err = oneStatement(ctx, c.deps, func(ctx context.Context) (map[int32]engine.Orders, error) {
			return c.deps.Ownership.Orders(ctx, c.deps.Node, nil)
		})
		if err != nil {
			return err
		}
	}
	c.deps.Registry.session.onPoolUsed(nil)
	return nil
}

// oneStatement limits a statement of a search.
func oneStatement[T any](ctx context.Context, deps *Deps, statement func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, deps.Timing.QueryTimeout)
	defer cancel()
	return statement(ctx)
}

// claimShare claims this node's share of the free leases. It ends early if the node stops, its heartbeats do, or the
// fleet changes, since then its share is another.
func (c *claim) claimShare(ctx context.Context) error {
	tenants, names := restricted(c.fleet)
	counts, err := oneStatement(ctx, c.deps, func(ctx context.Context) ([]engine.Want, error) {
		return c.deps.Ownership.Counts(ctx, tenants, names)
	})
	if err != nil {
		return err
	}
	plan := ownership.Balance(c.deps.Node.ID, c.fleet, counts, c.keeps, c.free.Leases)
	c.drain = plan.Release
	for wanted := range slices.Chunk(plan.Claim, claimMost) {
		leases, err := oneStatement(ctx, c.deps, func(ctx context.Context) ([]engine.Lease, error) {
			return c.deps.Ownership.Claim(ctx, c.deps.Node, wanted, c.trustHeartbeats)
		})
		if err != nil {
			return err
		}
		c.short = c.short || len(leases) < len(wanted)
		c.pauseRenamed(leases)
		c.claimed(leases)
		if !c.holds() {
			break
		}
	}
	return nil
}

// holds reports whether the share is still the same.
func (c *claim) holds() bool {
	sameID := func(a, b engine.Member) bool { return a.ID == b.ID }
	return c.deps.accept.Err() == nil && c.deps.leasesConfirmed() &&
		slices.EqualFunc(c.deps.Registry.Session().Members, c.fleet[1:], sameID)
}

// pauseRenamed makes the node release leases whose projections were renamed after they were listed, if the node does
// not run them under their new names.
func (c *claim) pauseRenamed(leases []engine.Lease) {
	member := c.deps.Node.Member()
	for i, l := range leases {
		if !member.Knows(l.ID.Tenant, l.ID.Name) {
			leases[i].Desired = engine.WantPause
		}
	}
}

// restricted returns the tenants that are named by nodes that do not serve all tenants, and the projections that any
// node runs for some tenants only.
func restricted(members []engine.Member) (tenants, names []string) {
	for _, m := range members {
		tenants = append(tenants, m.Tenants...)
		names = slices.AppendSeq(names, maps.Keys(m.Filters))
	}
	slices.Sort(tenants)
	slices.Sort(names)
	return slices.Compact(tenants), slices.Compact(names)
}
