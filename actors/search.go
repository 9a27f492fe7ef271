package actors

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
	"github.com/millrace-go/millrace/observe"
)

const (
	// resyncEvery is how many searches follow until one reads all owned leases and computes the shares anew, since the
	// answer to a claim may have been lost. With many leases it is one search for each resyncLeases of them, so that
	// these reads cost the same for any number.
	resyncEvery  = 15
	resyncLeases = 1000
	// claimMost limits the leases of one statement. A search claims all it wants by as many statements as that takes,
	// and the projections of each begin while the next one runs.
	claimMost = 5000
	// searchLimit limits a search in multiples of QueryTimeout, which limits each of its statements.
	searchLimit = 100
	// searchSoon is the least time between two searches that notifications cause.
	searchSoon = 50 * time.Millisecond
	// searchAgain is when the next search begins after another node was quicker. For the leases of a new tenant, nodes
	// compete.
	searchAgain = 5 * time.Millisecond
	// unownedShare limits what the periodic searches for leases without an owner cost, if they find none for this node:
	// at most 1 of this number of the time, but one search in unownedMost. They read all that no node runs, and a fleet
	// may have 100,000 of these. Notifications name the others at once. Leases of dead nodes are searched for each
	// time.
	unownedShare = 200
	unownedMost  = 2 * time.Minute
)

// search is the search for leases to claim. It has two steps: it reads which leases are free, and claims if that is
// needed.
type search struct {
	busy       bool
	again      bool // another search was asked for meanwhile
	revalidate bool // the projections get the leases that are read next
	rebalance  bool // the next search computes the shares, since nodes came or went
	resync     int  // searches until the owned leases are read and the shares are computed; 0 means in the next one
	planned    int  // the leases by which resync was planned
	timer      *time.Timer
	last       time.Time // when the last search began
	unowned    time.Time // when a periodic search looks for leases without an owner again
}

// claim is one search: the free leases, what it does about them, and the results. A search that failed may have
// results.
type claim struct {
	trustHeartbeats bool // nodes whose heartbeats expired count as dead
	unowned         bool // leases without an owner count as free
	took            time.Duration
	ensure          ensureRound
	free            []engine.LeaseRef

	members    []engine.Member // those that share the leases, this node first; nil if the shares are not computed
	keeps      []engine.LeaseRef
	readOwned  bool
	revalidate bool // as in search
	readOrders bool // of all leases, since no notifications arrive

	// report is called in the goroutine of the search, for what the node's actor does while the search goes on.
	report func(do func(ctx actor.Context))
	drain  []int32
	short  bool // other nodes were quicker
	orders map[int32]engine.Orders
}

// planResync plans the next read of the owned leases.
func (s *search) planResync(leases int) {
	s.resync, s.planned = max(resyncEvery, leases/resyncLeases), leases
}

// resyncLater puts off the next read by the leases that have been claimed since it was planned, unless it is due: a
// node that starts owns none when it is planned.
func (s *search) resyncLater(leases int) {
	if more := (leases - s.planned) / resyncLeases; s.resync > 0 && more > 0 {
		s.resync, s.planned = s.resync+more, leases
	}
}

// reconcile makes the missing rows of projections, claims this node's share of the free leases, and drains those beyond
// the share.
func (n *node) reconcile(ctx actor.Context) {
	n.search.unowned = time.Time{}
	n.search.again = n.search.again || n.search.busy
	n.reconcileAgain(ctx)
}

// reconcileAgain is the periodic reconcile. It may leave out the leases without an owner.
func (n *node) reconcileAgain(ctx actor.Context) {
	s := &n.search
	// Another search follows, whether or not this one succeeds.
	stopTimer(s.timer)
	s.timer = n.deps.After(ctx, jittered(n.deps.Timing.ReconcileInterval), n.reconcileAgain)
	if s.busy {
		return
	}
	// If the node's own heartbeat has expired, its own leases look free, and it would claim them.
	if !n.deps.Registry.Session().Connected || n.table.Closing() || !n.deps.leasesConfirmed() {
		if n.deps.Registry.poolFailingFor(0) {
			n.ping(ctx) // the heartbeats wait for the pool
		}
		return
	}
	s.busy, s.again, s.last = true, false, time.Now()
	c := &claim{
		trustHeartbeats: s.last.After(n.heartbeats.trust), unowned: !s.last.Before(s.unowned), ensure: n.nextEnsure(),
	}
	n.deps.Run(ctx, n.deps.Timing.QueryTimeout, func(ctx context.Context) error {
		// The projections that have their rows run, whether or not rows are added.
		c.ensure.err = n.ensure(ctx, &c.ensure)
		c.unowned = c.unowned || len(c.ensure.made) > 0
		return n.deps.Limiter.Read(ctx, func(ctx context.Context) (err error) {
			began := time.Now()
			c.free, err = n.deps.Ownership.Free(ctx, n.deps.Node, c.trustHeartbeats, c.unowned)
			c.took = time.Since(began)
			return err
		})
	}, func(ctx actor.Context, err error) { n.found(ctx, c, err) })
}

// reconcileSoon reconciles at once, unless the last search has just begun: many notifications may come at a time.
func (n *node) reconcileSoon(ctx actor.Context) {
	if since := time.Since(n.search.last); since < searchSoon {
		n.reconcileIn(ctx, jittered(searchSoon-since))
		return
	}
	n.reconcile(ctx)
}

func (n *node) reconcileIn(ctx actor.Context, d time.Duration) {
	stopTimer(n.search.timer)
	n.search.timer = n.deps.After(ctx, d, n.reconcile)
}

// found decides what to do about the free leases. Nearly always there is nothing to do.
func (n *node) found(ctx actor.Context, c *claim, err error) {
	n.ensureEnded(&c.ensure)
	if err != nil {
		n.searched(ctx, c, err)
		return
	}
	s := &n.search
	resync := s.resync <= 0
	s.resync--
	if resync {
		s.planResync(n.table.Len())
	}
	balance := resync || s.rebalance || len(c.free) > 0
	s.rebalance = false
	session := n.deps.Registry.Session()
	if c.unowned && len(c.free) == 0 && !session.Pooled {
		s.unowned = s.last.Add(min(unownedMost, unownedShare*c.took))
	}
	c.readOrders = session.Pooled
	c.readOwned = resync || slices.ContainsFunc(c.free, func(l engine.LeaseRef) bool {
		_, phase := n.table.Lease(l.Row)
		// it was lost, or this node counts as dead just now
		return phase == ownership.Running || phase == ownership.Draining
	})
	if n.table.Closing() || !balance && !c.readOwned && !c.readOrders {
		n.deps.Registry.poolWorks(nil)
		n.searched(ctx, c, nil)
		return
	}
	if c.readOwned {
		c.revalidate, s.revalidate = s.revalidate, false
		n.table.BeginRead()
	}
	if balance {
		c.members, c.keeps = append([]engine.Member{n.deps.Node.Member()}, session.Members...), n.table.Keeps()
	}
	self := ctx.Self()
	c.report = func(do func(ctx actor.Context)) { n.deps.call(self, do) }
	n.deps.Run(ctx, searchLimit*n.deps.Timing.QueryTimeout, func(ctx context.Context) error {
		return n.deps.Limiter.Read(ctx, func(ctx context.Context) error { return n.claim(ctx, c) })
	}, func(ctx actor.Context, err error) { n.claimed(ctx, c, err) })
}

// claim reads the owned leases, claims what the balance says, and reads the orders. What it reads and claims is
// reported at once. The owned leases are read before any is claimed: a node that starts owns none, and they would all
// be read twice.
func (n *node) claim(ctx context.Context, c *claim) (err error) {
	own, node := n.deps.Ownership, n.deps.Node
	if c.readOwned {
		owned, err := oneStatement(ctx, n, func(ctx context.Context) ([]engine.Lease,
			error) {
			return own.Owned(ctx, node)
		})
		if err != nil {
			return err
		}
		n.pauseRenamed(owned)
		c.report(func(ctx actor.Context) { n.ownedRead(ctx, c, owned) })
	}
	if c.members != nil {
		if err := n.claimShare(ctx, c); err != nil {
			return err
		}
	}
	if c.readOrders {
		c.orders, err = oneStatement(ctx, n, func(ctx context.Context) (map[int32]engine.Orders,
			error) {
			return own.Orders(ctx, node, nil)
		})
		if err != nil {
			return err
		}
	}
	n.deps.Registry.poolWorks(nil)
	return nil
}

// oneStatement limits a statement of a search.
func oneStatement[T any](ctx context.Context, n *node, statement func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, n.deps.Timing.QueryTimeout)
	defer cancel()
	return statement(ctx)
}

// claimShare claims this node's share of the free leases. It ends early if the node stops, its heartbeats do, or the
// fleet changes, since then its share is another.
func (n *node) claimShare(ctx context.Context, c *claim) error {
	tenants, names := restricted(c.members)
	counts, err := oneStatement(ctx, n, func(ctx context.Context) ([]engine.Want,
		error) {
		return n.deps.Ownership.Counts(ctx, tenants, names)
	})
	if err != nil {
		return err
	}
	plan := ownership.Balance(n.deps.Node.ID, c.members, counts, c.keeps, c.free)
	c.drain = plan.Release
	for wanted := range slices.Chunk(plan.Claim, claimMost) {
		leases, err := oneStatement(ctx, n, func(ctx context.Context) ([]engine.Lease, error) {
			return n.deps.Ownership.Claim(ctx, n.deps.Node, wanted, c.trustHeartbeats)
		})
		if err != nil {
			return err
		}
		c.short = c.short || len(leases) < len(wanted)
		n.pauseRenamed(leases)
		c.report(func(ctx actor.Context) { n.took(ctx, leases) })
		sameID := func(a, b engine.Member) bool { return a.ID == b.ID }
		if n.deps.accept.Err() != nil || !n.deps.leasesConfirmed() ||
			!slices.EqualFunc(n.deps.Registry.Session().Members, c.members[1:], sameID) {
			break
		}
	}
	return nil
}

// took runs the projections of leases that were claimed.
func (n *node) took(ctx actor.Context, leases []engine.Lease) {
	if len(leases) == 0 {
		return
	}
	n.leasesSeen(ctx, leases)
	n.log.Info("leases claimed", zap.Int("leases", len(leases)))
	for _, l := range leases {
		n.deps.leaseClaimed(l)
	}
	n.carryOut(ctx, n.table.Claimed(leases))
	n.search.resyncLater(n.table.Len())
}

// pauseRenamed makes the node release leases whose projections were renamed after they were listed, if the node does
// not run them under their new names.
func (n *node) pauseRenamed(leases []engine.Lease) {
	member := n.deps.Node.Member()
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

// claimed is called after a claim.
func (n *node) claimed(ctx actor.Context, c *claim, err error) {
	if len(c.drain) > 0 && err == nil {
		n.log.Info("leases released to other nodes", zap.Int("leases", len(c.drain)))
		n.carryOut(ctx, n.table.Drain(c.drain...))
	}
	n.ordered(ctx, c.orders, nil)
	n.searched(ctx, c, err)
}

// ownedRead compares the table with the leases that the node owns in the database.
func (n *node) ownedRead(ctx actor.Context, c *claim, owned []engine.Lease) {
	n.leasesSeen(ctx, owned)
	effects, lost := n.table.Read(owned, c.revalidate)
	if len(lost) > 0 {
		n.log.Info("leases lost without notice", zap.Int("leases", len(lost)))
	}
	for _, e := range effects {
		if e.Action == ownership.Run {
			n.deps.leaseClaimed(*e.Lease) // the answer to the claim was lost
		}
	}
	for _, l := range lost {
		n.rowGone(ctx, l.ID.Tenant)
		n.deps.leaseChanged(l.ID, l.Epoch, observe.LeaseLost)
	}
	n.carryOut(ctx, effects)
}

// searched ends a search.
func (n *node) searched(ctx actor.Context, c *claim, err error) {
	s := &n.search
	s.busy = false
	n.searchedTenants(ctx)
	n.readOrders(ctx) // also of what has just been claimed
	n.carryOut(ctx, nil)
	if err := errors.Join(err, c.ensure.err); err != nil {
		n.ping(ctx)
		s.resync, s.revalidate, s.rebalance = 0, s.revalidate || c.revalidate, true
		n.log.Warn("claiming leases failed, retrying", zap.Error(err))
		n.deps.Registry.publishSession(func(e *SessionEntry) {
			e.ClaimErr = err
			if e.ClaimFailing.IsZero() {
				e.ClaimFailing = time.Now()
			}
		})
		return
	}
	n.deps.Registry.publishSession(func(e *SessionEntry) {
		e.ClaimErr, e.ClaimFailing, e.Claims = nil, time.Time{}, e.Claims+1
	})
	switch {
	case s.again, c.ensure.more:
		n.reconcile(ctx)
	case c.short:
		n.reconcileIn(ctx, searchAgain)
	}
}

// ping finds out whether the pool works. A wait for a slot, or a slow statement, does not show that.
func (n *node) ping(ctx actor.Context) {
	n.deps.Run(ctx, n.deps.Timing.QueryTimeout, func(ctx context.Context) error {
		n.deps.Registry.poolWorks(n.deps.Health.Ping(ctx))
		return nil
	}, func(actor.Context, error) {})
}
