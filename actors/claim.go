package actors

import (
	"context"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
	"github.com/millrace-go/millrace/messages"
)

const (
	// resyncEvery is how many looks for free leases go by until all owned ones are read and the shares worked out anew.
	resyncEvery = 15
	// ensureMost is how many rows of projections one transaction makes at most.
	ensureMost = 1000
	// claimMost bounds the leases of one claim.
	claimMost = 5000
	// contended is when to look again after somebody else was quicker, and how far apart looks are that notices ask for.
	contended = 50 * time.Millisecond
)

// view is what a look for free leases starts from.
type view struct {
	ensured   map[string]bool
	in        engine.Incarnation
	members   []engine.Member   // this node is the first
	own       []engine.LeaseRef // without those that are being given back
	rows      []int32
	epochs    map[int32]int64 // of rows
	judge     bool
	rebalance bool
	resync    bool
	confirm   bool // whether the projections are handed what is read
	states    bool // whether to read the wanted states: where notices arrive, seldom
}

// claimed is what came of it.
type claimed struct {
	view    view
	tenants []string // whose rows were made
	slice   int      // how many rows the next slice may make
	more    bool     // there are further tenants
	removed []string // tenants that are there no more
	leases  []engine.Lease
	owned   []engine.Lease
	read    bool // owned was read
	release []int32
	lost    []int32 // of the rows that this node took for its own, those that are free or another's
	short   bool    // others were quicker
	states  map[int32]engine.Orders
	err     error
}

// beaten takes in that a heartbeat arrived.
func (n *node) beaten(ctx actor.Context, at time.Time) {
	lease := n.env.Node.LeaseDuration
	silent := at.Sub(n.beat)
	if n.beat.IsZero() {
		silent = 0
	}
	if silent > lease/2 {
		// What kept this node from its heartbeats may have kept the others from theirs.
		n.judge = time.Now().Add(lease)
	}
	if n.up && silent > lease {
		n.missed(ctx)
	}
	n.beat = at
}

// leave claims nothing any more, and tells the others that they have this node's share.
func (n *node) leave(ctx actor.Context) {
	n.draining = true
	if !n.claiming {
		ctx.Send(ctx.Parent(), &messages.Left{})
	}
	n.env.run(ctx.Self(), n.env.Timing.QueryTimeout, func(ctx context.Context) any {
		if err := n.env.Store.Deregister(ctx, n.env.Node); err != nil {
			n.log.Debug("deregistering the node failed", zap.Error(err))
		}
		return &over{}
	})
}

// over tells that work has ended that has nothing to say.
type over struct{}

// reconcile makes rows for new tenants, claims this node's share of what is free, gives back what is more than its share,
// and reads the wanted states.
func (n *node) reconcile(ctx actor.Context) {
	// Whatever becomes of this one, another follows.
	n.later(ctx, n.jittered(n.env.Timing.Reconcile))
	if n.claiming {
		n.again = true
		return
	}
	// A node whose own heartbeat ran out would claim its own leases.
	if !n.up || n.draining || !n.env.Trusted() {
		n.probe(ctx)
		return
	}
	n.claiming, n.again, n.lastLook = true, false, time.Now()
	self := engine.Member{ID: n.env.Node.ID, Projections: n.env.Node.Projections, Tenants: n.env.Node.Tenants}
	v := view{
		ensured: make(map[string]bool, len(n.ensured)), in: n.in, epochs: make(map[int32]int64, len(n.owned)), members: append([]engine.Member{self}, n.neighbours...),
		judge: time.Now().After(n.judge), rebalance: n.rebalance, resync: n.resync <= 0, confirm: n.confirm,
	}
	v.states = v.resync || n.pooled
	for t := range n.ensured {
		v.ensured[t] = true
	}
	for row, lease := range n.owned {
		v.rows = append(v.rows, row)
		v.epochs[row] = lease.epoch
		if !n.leaving[row] {
			v.own = append(v.own, lease.seat)
		}
	}
	n.rebalance, n.confirm = false, false
	if n.resync--; v.resync {
		n.resync = resyncEvery
	}
	slice := n.slice
	n.env.run(ctx.Self(), n.env.Timing.QueryTimeout, func(ctx context.Context) any {
		result := &claimed{view: v, slice: slice}
		if result.err = n.claim(ctx, result); result.err == nil {
			n.env.Registry.well(true)
		}
		return result
	})
}

// soon reconciles at once, unless that was done just now: notices may come thick.
func (n *node) soon(ctx actor.Context) {
	if since := time.Since(n.lastLook); since < contended {
		n.later(ctx, n.jittered(contended-since))
		return
	}
	n.reconcile(ctx)
}

func (n *node) later(ctx actor.Context, d time.Duration) {
	stopTimer(n.timer)
	n.timer = n.env.after(d, ctx.Self(), &messages.Reconcile{})
}

// claim is the work of reconcile. What it has got done stands in r, also where it fails.
func (n *node) claim(ctx context.Context, r *claimed) error {
	store, node, v := n.env.Store, n.env.Node, r.view
	// The projections that have their rows run, whether or not rows are added.
	ensured := n.ensure(ctx, r)
	release, err := n.env.Limiter.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	free, err := store.Free(ctx, node, v.judge)
	if err != nil {
		return err
	}
	if len(free) > 0 || v.rebalance || v.resync {
		counts, err := store.Counts(ctx, restricted(v.members))
		if err != nil {
			return err
		}
		moves := ownership.Balance(node.ID, v.members, counts, v.own, free)
		r.release = moves.Release
		if wanted := moves.Claim[:min(len(moves.Claim), claimMost)]; len(wanted) > 0 {
			if r.leases, err = store.Claim(ctx, node, wanted, v.judge); err != nil {
				return err
			}
			r.short = len(r.leases) < len(moves.Claim)
		}
	}
	// A row of this node's that is free was lost, or the node counts as dead at the moment, and owns it still.
	doubtful := slices.ContainsFunc(free, func(seat engine.LeaseRef) bool {
		_, own := v.epochs[seat.Row]
		return own
	})
	if v.resync || doubtful {
		if r.owned, err = store.Owned(ctx, node); err != nil {
			return err
		}
		r.read, r.lost = true, without(v.rows, r.owned)
	}
	if len(v.rows) > 0 && v.states {
		if r.states, err = store.Wanted(ctx, v.rows); err != nil {
			return err
		}
	}
	return ensured
}

// without returns the rows that are none of the leases'.
func without(rows []int32, leases []engine.Lease) []int32 {
	held := make(map[int32]bool, len(leases))
	for _, l := range leases {
		held[l.Row] = true
	}
	return slices.DeleteFunc(slices.Clone(rows), func(row int32) bool { return held[row] })
}

// probe looks whether the pool works again where it did not: the heartbeats wait for that.
func (n *node) probe(ctx actor.Context) {
	if !n.env.Registry.unwell(0) {
		return
	}
	n.ping(ctx)
}

// ping tries the pool, which a slot that does not come free or a slow statement says nothing of.
func (n *node) ping(ctx actor.Context) {
	n.env.run(ctx.Self(), n.env.Timing.QueryTimeout, func(ctx context.Context) any {
		n.env.Registry.well(n.env.Store.Ping(ctx) == nil)
		return &over{}
	})
}

// ensure makes the rows of the node's projections for tenants that are new to it. It goes on for half of a call's time, in
// slices that commit by themselves, and r says how far it came; where a slice fails, the next one is half as large.
func (n *node) ensure(ctx context.Context, r *claimed) (err error) {
	ctx, cancel := context.WithTimeout(ctx, n.env.Timing.QueryTimeout/2)
	defer cancel()
	tenants := n.env.Node.Tenants
	if len(tenants) == 0 {
		if tenants, err = n.tenants(ctx); err != nil {
			return err
		}
	}
	r.removed = removed(r.view.ensured, tenants)
	fresh := slices.DeleteFunc(slices.Clone(tenants), func(t string) bool { return r.view.ensured[t] })
	for len(fresh) > 0 {
		if ctx.Err() != nil {
			r.more = true
			return nil
		}
		slice := fresh[:min(len(fresh), max(1, r.slice/len(n.env.Node.Projections)))]
		if err := n.ensureSlice(ctx, slice); err != nil {
			r.slice = max(1, len(slice)*len(n.env.Node.Projections)/2)
			return err
		}
		r.slice = min(ensureMost, 2*r.slice)
		r.tenants = append(r.tenants, slice...)
		fresh = fresh[len(slice):]
	}
	return nil
}

func (n *node) tenants(ctx context.Context) ([]string, error) {
	release, err := n.env.Limiter.read(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return n.env.Store.Tenants(ctx)
}

func (n *node) ensureSlice(ctx context.Context, tenants []string) error {
	release, err := n.env.Limiter.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	return n.env.Store.Ensure(ctx, tenants, n.env.Node.Projections)
}

// removed returns the tenants whose rows were made and that do not exist any more. A tenant that is made anew needs new rows.
func removed(ensured map[string]bool, tenants []string) (gone []string) {
	there := make(map[string]bool, len(tenants))
	for _, t := range tenants {
		there[t] = true
	}
	for t := range ensured {
		if !there[t] {
			gone = append(gone, t)
		}
	}
	return gone
}

// restricted are the tenants that any node names, which then does not serve all.
func restricted(members []engine.Member) (tenants []string) {
	for _, m := range members {
		tenants = append(tenants, m.Tenants...)
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

func (n *node) claimed(ctx actor.Context, msg *claimed) {
	n.claiming, n.slice = false, msg.slice
	if n.draining {
		defer ctx.Send(ctx.Parent(), &messages.Left{})
	}
	for _, t := range msg.removed {
		delete(n.ensured, t)
	}
	for _, l := range append(slices.Clone(msg.leases), msg.owned...) {
		n.learned(ctx, l.Incarnation)
		break // they come from one reconciliation
	}
	if msg.view.in == n.in || msg.view.in == 0 {
		for _, t := range msg.tenants {
			n.ensured[t] = true
		}
	}
	if len(msg.leases) > 0 {
		n.log.Info("leases claimed", zap.Int("leases", len(msg.leases)))
	}
	if msg.view.confirm && msg.read {
		ctx.Send(ctx.Parent(), &messages.Owned{Leases: slices.Clone(msg.owned)})
	}
	// What was given back since it was read is not brought back.
	msg.owned = slices.DeleteFunc(msg.owned, func(l engine.Lease) bool {
		_, owned := n.owned[l.Row]
		return !owned && msg.view.epochs[l.Row] == l.Epoch
	})
	if leases := append(msg.leases, msg.owned...); len(leases) > 0 {
		for _, l := range leases {
			if own := n.owned[l.Row]; own.epoch < l.Epoch || own.seat.ID != l.ID {
				n.owned[l.Row] = owned{engine.LeaseRef{Row: l.Row, ID: l.ID}, l.Epoch}
				delete(n.leaving, l.Row)
			}
		}
		ctx.Send(ctx.Parent(), &messages.Claimed{Leases: leases})
	}
	n.doubt(ctx, msg)
	n.readChanged(ctx) // also of what has just been claimed
	if msg.err != nil {
		n.ping(ctx)
		n.resync, n.rebalance, n.confirm = 0, n.rebalance || msg.view.rebalance, n.confirm || msg.view.confirm
		n.log.Warn("claiming leases failed, retrying", zap.Error(msg.err))
		n.env.Registry.publishSession(func(e *SessionEntry) { e.ClaimErr = msg.err })
		return
	}
	if len(msg.release) > 0 {
		n.log.Info("leases released to other nodes", zap.Int("leases", len(msg.release)))
		n.surrender(ctx, msg.release)
	}
	if msg.states != nil {
		n.wanted(ctx, &messages.WantedStates{Rows: msg.view.rows, States: msg.states})
	}
	n.env.Registry.publishSession(func(e *SessionEntry) { e.ClaimErr, e.Claims = nil, e.Claims+1 })
	switch {
	case n.again, msg.more:
		n.reconcile(ctx)
	case msg.short:
		n.later(ctx, contended)
	}
}

// doubt lets go of leases that are not this node's any more, though nobody told it, and has their projections find that out.
func (n *node) doubt(ctx actor.Context, msg *claimed) {
	var lost []int32
	for _, row := range msg.lost {
		if !n.leaving[row] && n.owned[row].epoch == msg.view.epochs[row] {
			n.removed(ctx, n.owned[row].seat.ID.Tenant)
			delete(n.owned, row)
			lost = append(lost, row)
		}
	}
	if len(lost) > 0 {
		n.log.Info("leases lost without notice", zap.Int("leases", len(lost)))
		ctx.Send(ctx.Parent(), &messages.Doubted{Rows: lost})
	}
}

// surrender has leases given back that are not being given back already.
func (n *node) surrender(ctx actor.Context, rows []int32) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(row int32) bool {
		_, owned := n.owned[row]
		return !owned || n.leaving[row]
	})
	for _, row := range rows {
		n.leaving[row] = true
	}
	if len(rows) > 0 && !n.draining {
		ctx.Send(ctx.Parent(), &messages.Surrender{Rows: rows})
	}
}

// readStates is what a look at the wanted states of some projections found.
type readStates struct {
	rows   []int32
	asked  map[int32]bool
	states map[int32]engine.Orders
	err    error
}

// readChanged reads the wanted states of this node's projections of which notices told, and waits for nothing else.
func (n *node) readChanged(ctx actor.Context) {
	if n.reading {
		return
	}
	msg := &readStates{asked: make(map[int32]bool)}
	for row, asked := range n.changed {
		if _, owned := n.owned[row]; owned {
			msg.rows = append(msg.rows, row)
			msg.asked[row] = asked
			delete(n.changed, row)
		} else if !n.claiming {
			delete(n.changed, row)
		}
	}
	if len(msg.rows) == 0 {
		return
	}
	n.reading = true
	n.env.run(ctx.Self(), n.env.Timing.QueryTimeout, func(ctx context.Context) any {
		msg.states, msg.err = n.env.Store.Wanted(ctx, msg.rows)
		return msg
	})
}

func (n *node) readStates(ctx actor.Context, msg *readStates) {
	n.reading = false
	if msg.err != nil {
		n.resync = 0 // which reads them
		n.log.Warn("reading desired states failed, retrying", zap.Error(msg.err))
	} else {
		n.wanted(ctx, &messages.WantedStates{Rows: msg.rows, States: msg.states, Asked: msg.asked})
	}
	n.readChanged(ctx)
}

// wanted passes the wanted states on. What is to stop is given back.
func (n *node) wanted(ctx actor.Context, msg *messages.WantedStates) {
	var stop []int32
	for row, state := range msg.States {
		if state.Desired == engine.WantStop {
			stop = append(stop, row)
		}
	}
	n.surrender(ctx, stop)
	ctx.Send(ctx.Parent(), msg)
}
