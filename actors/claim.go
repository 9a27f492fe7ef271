package actors

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
)

const (
	// resyncEvery is how many looks for free leases go by until all owned leases are read and the shares worked out anew.
	resyncEvery = 15
	// claimMost bounds the leases of one claim.
	claimMost = 5000
	// contended is when to look again after another node was quicker, and how far apart looks are that notices ask for.
	contended = 50 * time.Millisecond
)

// claims is the search for leases to claim. It has two steps: a look at what is free, and a claim where that is needed.
type claims struct {
	busy       bool
	again      bool // another search was asked for meanwhile
	rebalance  bool // nodes have come or gone since the shares were worked out last
	revalidate bool // whether the projections are given the leases that are read next
	resync     int  // how many more looks until all owned leases are read, since an answer may have been lost
	timer      *time.Timer
	last       time.Time // when the last search began
}

// found is the result of a look for free leases.
type found struct {
	ensured ensured
	free    []engine.LeaseRef
	judge   bool // whether nodes count as dead whose heartbeats ran out
	err     error
}

// plan is what a claim starts from.
type plan struct {
	found   *found
	balance bool
	members []engine.Member   // this node is the first
	keeps   []engine.LeaseRef // without those that are being given back
	// rebalance, read, revalidate and orders report whether nodes came or went, whether the owned leases are read, whether the
	// projections are given them, and whether what is asked of them is read.
	rebalance, read, revalidate, orders bool
}

// claimed is the result of a claim. What was done stands in it, also where it failed.
type claimed struct {
	plan    plan
	leases  []engine.Lease
	release []int32
	short   bool // other nodes were quicker
	owned   []engine.Lease
	read    bool // owned was read
	orders  map[int32]engine.Orders
	err     error
}

// reconcile makes rows for new tenants, claims this node's share of what is free, and gives back what is beyond it.
func (n *node) reconcile(ctx actor.Context) {
	c := &n.claims
	// Whatever becomes of this one, another follows.
	n.later(ctx, n.jittered(n.deps.Timing.Reconcile))
	if c.busy {
		c.again = true
		return
	}
	// A node whose own heartbeat ran out would claim its own leases.
	if !n.session.up || n.table.Closing() || !n.deps.Trusted() {
		n.probe(ctx)
		return
	}
	c.busy, c.again, c.last = true, false, time.Now()
	known := n.tenants.ensured
	result := &found{judge: time.Now().After(n.session.trustHeartbeats), ensured: ensured{in: n.tenants.in, slice: n.tenants.slice}}
	n.deps.run(ctx.Self(), n.deps.Timing.QueryTimeout, func(ctx context.Context) any {
		// The projections that have their rows run, whether or not rows are added.
		result.ensured.err = n.ensure(ctx, known, &result.ensured)
		result.free, result.err = n.lookForFree(ctx, result.judge)
		return result
	})
}

func (n *node) lookForFree(ctx context.Context, judge bool) ([]engine.LeaseRef, error) {
	release, err := n.deps.Limiter.read(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return n.deps.Store.Free(ctx, n.deps.Node, judge)
}

// soon reconciles at once, unless that was done just now: notices may come thick.
func (n *node) soon(ctx actor.Context) {
	if since := time.Since(n.claims.last); since < contended {
		n.later(ctx, n.jittered(contended-since))
		return
	}
	n.reconcile(ctx)
}

func (n *node) later(ctx actor.Context, d time.Duration) {
	stopTimer(n.claims.timer)
	n.claims.timer = n.deps.after(d, ctx.Self(), &reconcileDue{})
}

// reconcileDue is sent when it is time to look for free leases.
type reconcileDue struct{}

// found goes on after a look for free leases. Nearly always there is nothing to be done.
func (n *node) found(ctx actor.Context, msg *found) {
	n.ensured(&msg.ensured)
	if msg.err != nil {
		n.searched(ctx, &claimed{plan: plan{found: msg}, err: msg.err})
		return
	}
	c := &n.claims
	resync := c.resync <= 0
	if c.resync--; resync {
		c.resync = resyncEvery
	}
	p := plan{found: msg, rebalance: c.rebalance, orders: n.session.pooled, balance: resync || c.rebalance || len(msg.free) > 0}
	p.read = resync || slices.ContainsFunc(msg.free, func(l engine.LeaseRef) bool {
		_, phase := n.table.Lease(l.Row)
		return phase == ownership.Running || phase == ownership.Draining // it was lost, or this node counts as dead just now
	})
	if n.table.Closing() || !p.balance && !p.read && !p.orders {
		n.deps.Registry.well(true)
		n.searched(ctx, &claimed{plan: p})
		return
	}
	c.rebalance = false
	if p.read {
		p.revalidate, c.revalidate = c.revalidate, false
		n.table.BeginRead()
	}
	if p.balance {
		self := engine.Member{ID: n.deps.Node.ID, Projections: n.deps.Node.Projections, Tenants: n.deps.Node.Tenants}
		p.members, p.keeps = append([]engine.Member{self}, n.session.neighbours...), n.table.Keeps()
	}
	n.deps.run(ctx.Self(), n.deps.Timing.QueryTimeout, func(ctx context.Context) any {
		result := &claimed{plan: p}
		if result.err = n.claim(ctx, result); result.err == nil {
			n.deps.Registry.well(true)
		}
		return result
	})
}

// claim claims what the balance says, and reads what the plan asks for.
func (n *node) claim(ctx context.Context, r *claimed) error {
	store, node, p := n.deps.Store, n.deps.Node, r.plan
	release, err := n.deps.Limiter.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	if p.balance {
		counts, err := store.Counts(ctx, restricted(p.members))
		if err != nil {
			return err
		}
		moves := ownership.Balance(node.ID, p.members, counts, p.keeps, p.found.free)
		r.release = moves.Release
		if wanted := moves.Claim[:min(len(moves.Claim), claimMost)]; len(wanted) > 0 {
			if r.leases, err = store.Claim(ctx, node, wanted, p.found.judge); err != nil {
				return err
			}
			r.short = len(r.leases) < len(moves.Claim)
		}
	}
	if p.read {
		if r.owned, err = store.Owned(ctx, node); err != nil {
			return err
		}
		r.read = true
	}
	if p.orders {
		r.orders, err = store.Orders(ctx, node, nil)
	}
	return err
}

// restricted are the tenants that any node names, which then does not serve all.
func restricted(members []engine.Member) (tenants []string) {
	for _, m := range members {
		tenants = append(tenants, m.Tenants...)
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// claimed takes in what a claim has got and read.
func (n *node) claimed(ctx actor.Context, msg *claimed) {
	for _, l := range append(slices.Clone(msg.leases), msg.owned...) {
		n.learned(ctx, l.Incarnation)
		break // they come from one claim
	}
	if len(msg.leases) > 0 {
		n.log.Info("leases claimed", zap.Int("leases", len(msg.leases)))
	}
	n.carryOut(ctx, n.table.Claimed(msg.leases))
	if msg.read {
		n.read(ctx, msg)
	}
	if len(msg.release) > 0 && msg.err == nil {
		n.log.Info("leases released to other nodes", zap.Int("leases", len(msg.release)))
		n.carryOut(ctx, n.table.Drain(msg.release...))
	}
	n.ordered(ctx, msg.orders, nil)
	n.searched(ctx, msg)
}

// read takes in which leases the database says the node owns.
func (n *node) read(ctx actor.Context, msg *claimed) {
	effects, lost := n.table.Read(msg.owned, msg.plan.revalidate)
	if len(lost) > 0 {
		n.log.Info("leases lost without notice", zap.Int("leases", len(lost)))
	}
	for _, l := range lost {
		n.removed(ctx, l.ID.Tenant)
	}
	n.carryOut(ctx, effects)
}

// searched ends a search for leases.
func (n *node) searched(ctx actor.Context, msg *claimed) {
	c := &n.claims
	c.busy = false
	n.readOrders(ctx) // also of what has just been claimed
	n.carryOut(ctx, nil)
	if err := errors.Join(msg.err, msg.plan.found.ensured.err); err != nil {
		n.ping(ctx)
		c.resync, c.rebalance, c.revalidate = 0, c.rebalance || msg.plan.rebalance, c.revalidate || msg.plan.revalidate
		n.log.Warn("claiming leases failed, retrying", zap.Error(err))
		n.deps.Registry.publishSession(func(e *SessionEntry) { e.ClaimErr = err })
		return
	}
	n.deps.Registry.publishSession(func(e *SessionEntry) { e.ClaimErr, e.Claims = nil, e.Claims+1 })
	switch {
	case c.again, msg.plan.found.ensured.more:
		n.reconcile(ctx)
	case msg.short:
		n.later(ctx, contended)
	}
}

// probe looks whether the pool works again where it did not: the heartbeats wait for that.
func (n *node) probe(ctx actor.Context) {
	if !n.deps.Registry.unwell(0) {
		return
	}
	n.ping(ctx)
}

// ping tries the pool. A wait for a slot, or a slow statement, does not show whether the pool works.
func (n *node) ping(ctx actor.Context) {
	n.deps.run(ctx.Self(), n.deps.Timing.QueryTimeout, func(ctx context.Context) any {
		n.deps.Registry.well(n.deps.Store.Ping(ctx) == nil)
		return &over{}
	})
}
