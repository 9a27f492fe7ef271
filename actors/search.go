package actors

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
	"github.com/millrace-go/millrace/internal/rounds"
)

// searchIn makes the missing rows of projections, claims this node's share of the free leases, and drains those beyond
// the share. It does so after a delay, in place of the search that is due.
func (n *node) searchIn(ctx actor.Context, delay time.Duration) {
	if delay > 0 {
		stopTimer(n.searchTimer)
		n.searchTimer = n.deps.After(ctx, delay, func(ctx actor.Context) { n.searchIn(ctx, 0) })
		return
	}
	n.search.Request()
	n.beginSearch(ctx)
}

// searchSoon searches at once, unless the last search has just begun.
func (n *node) searchSoon(ctx actor.Context) { n.searchIn(ctx, jittered(n.search.Soon(time.Now()))) }

// beginSearch is the periodic search. It may leave out the leases without an owner.
func (n *node) beginSearch(ctx actor.Context) {
	// Another search follows, whether or not this one succeeds.
	stopTimer(n.searchTimer)
	n.searchTimer = n.deps.After(ctx, jittered(n.deps.Timing.ReconcileInterval), n.beginSearch)
	if n.search.Busy() {
		return
	}
	session := n.deps.Registry.Session()
	// If the node's own heartbeat has expired, its own leases look free, and it would claim them.
	if !session.Connected || n.table.Closing() || !n.deps.leasesConfirmed() {
		if n.deps.Registry.session.poolFailingFor(0) {
			n.deps.pingPool(ctx) // the heartbeats wait for the pool
		}
		return
	}
	now := time.Now()
	c := &claim{deps: n.deps, trustHeartbeats: n.heartbeats.Trusted(now),
		ensure: n.rows.Begin(now, rounds.Conditions{Resyncs: n.search.Resyncs(), Pooled: session.Pooled,
			Interval: n.deps.Timing.ReconcileInterval, Members: session.Members}),
		free: ownership.Free{Unowned: n.search.Begin(now)}}
	n.deps.Go(ctx, n.deps.Timing.QueryTimeout, c.find, func(ctx actor.Context, err error) { n.found(ctx, c, err) })
}

// found decides what to do about the free leases. Nearly always there is nothing to do.
func (n *node) found(ctx actor.Context, c *claim, err error) {
	rows := n.rows.Ended(c.ensure, time.Now(), c.rowsErr)
	n.deps.reportRows(rows)
	c.more = rows.More
	if rows.Again {
		n.search.Request()
	}
	if err != nil {
		n.endSearch(ctx, c, err)
		return
	}
	session := n.deps.Registry.Session()
	c.free.Pooled = session.Pooled
	c.step = n.search.Decide(n.table, c.free)
	if c.step == (ownership.Step{}) {
		n.deps.Registry.session.onPoolUsed(nil)
		n.endSearch(ctx, c, nil)
		return
	}
	if c.step.Balance {
		c.fleet = append([]engine.Member{n.deps.Node.Member()}, session.Members...)
		c.keeps = n.table.Keeps()
	}
	self := ctx.Self()
	c.ownedRead = func(owned []engine.Lease) {
		n.deps.call(self, func(ctx actor.Context) { n.ownedRead(ctx, c, owned) })
	}
	c.claimed = func(leases []engine.Lease) {
		n.deps.call(self, func(ctx actor.Context) { n.took(ctx, leases) })
	}
	n.deps.Go(ctx, searchLimit*n.deps.Timing.QueryTimeout, func(ctx context.Context) error {
		return n.deps.Limiter.Read(ctx, c.run)
	}, func(ctx actor.Context, err error) { n.endSearch(ctx, c, err) })
}

// ownedRead compares the table with the leases that the node owns in the database.
func (n *node) ownedRead(ctx actor.Context, c *claim, owned []engine.Lease) {
	effects, lost := n.table.Read(owned, c.step.Revalidate)
	gone := make([]string, len(lost))
	for i, l := range lost {
		gone[i] = l.ID.Tenant
	}
	n.seen(ctx, incarnationOf(owned), gone...)
	if len(lost) > 0 {
		n.deps.Log.Info("leases lost without notice", zap.Int("leases", len(lost)))
	}
	for _, e := range effects {
		if e.Action == ownership.Run {
			n.deps.leaseClaimed(*e.Lease) // the answer to the claim was lost
		}
	}
	n.lose(ctx, effects, lost)
}

// took runs the projections of leases that were claimed.
func (n *node) took(ctx actor.Context, leases []engine.Lease) {
	if len(leases) == 0 {
		return
	}
	n.seen(ctx, incarnationOf(leases))
	n.deps.Log.Info("leases claimed", zap.Int("leases", len(leases)))
	for _, l := range leases {
		n.deps.leaseClaimed(l)
	}
	n.carryOut(ctx, n.table.Claimed(leases))
	n.search.Claimed(n.table.Len())
}

// endSearch ends a search, whichever step it has reached.
func (n *node) endSearch(ctx actor.Context, c *claim, err error) {
	if len(c.drain) > 0 && err == nil {
		n.deps.Log.Info("leases released to other nodes", zap.Int("leases", len(c.drain)))
		n.carryOut(ctx, n.table.Drain(c.drain...))
	}
	n.carryOut(ctx, n.table.Order(c.orders))
	err = errors.Join(err, c.rowsErr)
	after, follows := n.search.Ended(ownership.Result{Step: c.step, Failed: err != nil, More: c.more, Short: c.short})
	n.checkLeases(ctx, n.changes.Searched(n.search.Age(time.Now())))
	n.readOrders(ctx) // also of what has just been claimed
	n.carryOut(ctx, nil)
	if err != nil {
		n.deps.pingPool(ctx)
		n.deps.Log.Warn("claiming leases failed, retrying", zap.Error(err))
	}
	n.deps.Registry.session.onSearchEnded(err)
	if follows {
		n.searchIn(ctx, after)
	}
}

// reportRows logs and publishes the result of a round of making rows.
func (d *Deps) reportRows(r rounds.Report) {
	for _, l := range r.LeftOut {
		log := d.Log.With(zap.String("projection", l.Projection), zap.Int("tenants", len(l.Tenants)),
			zap.String("tenant", l.Tenants[0]))
		if l.Earlier != "" {
			log.Info("a projection waits until no node registers its earlier name", zap.String("earlier", l.Earlier))
		} else {
			log.Warn("a registered projection is retired and does not run", zap.String("reason", l.Retired))
		}
	}
	for tenant, failure := range r.Failed {
		d.Log.Warn("the hook by which a tenant begins with a version failed, retrying", zap.String("tenant", tenant),
			zap.Error(failure.Err))
	}
	if r.Changed {
		d.Registry.publishUnbegun(r.Unbegun)
	}
	d.Registry.forget(r.Removed)
}
