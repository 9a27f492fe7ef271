package actors

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

const (
	// resyncEvery is how many looks for free leases go by until all owned ones are read.
	resyncEvery = 15
	// claimMost bounds the leases of one claim.
	claimMost = 5000
	// gather is how long checkpoints to be advanced are gathered for one statement.
	gather = 20 * time.Millisecond
	// pollSlice is how many tenants' heads are looked at in one go.
	pollSlice = 250
)

// node claims leases, follows their projections' wanted states, polls the heads of its tenants, and moves checkpoints of
// many projections in one statement.
type node struct {
	env *Env
	log *zap.Logger

	draining bool
	up       bool // the session stands: the node is registered
	beat     time.Time
	ensured  map[string]bool
	owned    map[int32]bool
	claiming bool
	again    bool
	resync   int // how many more claims until all owned leases are read, since an answer may have been lost
	timer    *time.Timer

	advances []request
	moving   bool
	flush    *time.Timer

	heads   []string // tenants whose heads are still to be looked at in this round
	polling bool
	poll    *time.Timer
}

type request struct {
	from    *actor.PID
	advance projection.Advance
}

// NewNode makes the node's actor. Its parent takes the leases that it claims.
func NewNode(env *Env) *actor.Props {
	return Props("node", env.Log, &node{env: env, log: env.Log, ensured: make(map[string]bool), owned: make(map[int32]bool)})
}

// What the node's work posts back.
type (
	claimed struct {
		tenants []string
		leases  []projection.Lease
		owned   []projection.Lease
		paused  map[int32]bool
		err     error
	}
	moved struct {
		requests []request
		rows     map[int32]bool
		err      error
	}
	looked struct {
		heads, marks map[string]int64
		err          error
	}
	flushDue struct{}
	pollDue  struct{}
)

func (n *node) Start(ctx actor.Context) {
	n.poll = n.env.after(n.env.Timing.Poll, ctx.Self(), &pollDue{})
}

func (n *node) Stop(actor.Context) {
	stopTimer(n.timer)
	stopTimer(n.flush)
	stopTimer(n.poll)
}

func (n *node) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.SessionUp:
		n.up = true
		if msg.Again {
			// Notifications and commits may have been missed, and the server may be another one.
			ctx.Send(ctx.Parent(), &messages.Recheck{})
		}
		n.reconcile(ctx)
	case *messages.SessionLost:
		n.up = false
	case *messages.Drain:
		n.draining = true
	case *messages.Notified, *messages.Reconcile:
		n.reconcile(ctx)
	case *messages.Ended:
		delete(n.owned, msg.Lease.Row)
		n.reconcile(ctx)
	case *messages.Beaten:
		if n.up && msg.At.Sub(n.beat) > n.env.Node.LeaseTime {
			ctx.Send(ctx.Parent(), &messages.Recheck{})
		}
		n.beat = msg.At
	case *claimed:
		n.claimed(ctx, msg)
	case *messages.AdvanceRequest:
		n.advances = append(n.advances, request{ctx.Sender(), msg.Advance})
		if n.flush == nil && !n.moving {
			n.flush = n.env.after(gather, ctx.Self(), &flushDue{})
		}
	case *flushDue:
		n.move(ctx)
	case *moved:
		n.moved(ctx, msg)
	case *pollDue:
		if len(n.heads) == 0 {
			n.heads = slices.Collect(maps.Keys(n.env.Feeds.marks()))
		}
		n.look(ctx)
	case *looked:
		n.looked(ctx, msg)
	}
}

// reconcile makes rows for new tenants, claims what is free, and reads the wanted states.
func (n *node) reconcile(ctx actor.Context) {
	// Whatever becomes of this one, another follows.
	stopTimer(n.timer)
	n.timer = n.env.after(n.jittered(n.env.Timing.Reconcile), ctx.Self(), &messages.Reconcile{})
	if n.claiming {
		n.again = true
		return
	}
	// A node whose own heartbeat ran out would claim its own leases.
	if !n.up || n.draining || !n.env.Trusted() {
		return
	}
	n.claiming, n.again = true, false
	ensured := make(map[string]bool, len(n.ensured))
	for t := range n.ensured {
		ensured[t] = true
	}
	rows := make([]int32, 0, len(n.owned))
	for row := range n.owned {
		rows = append(rows, row)
	}
	resync := n.resync <= 0
	if n.resync--; resync {
		n.resync = resyncEvery
	}
	n.env.run(ctx.Self(), n.env.Timing.Call, func(ctx context.Context) any { return n.claim(ctx, ensured, rows, resync) })
}

// claim is the work of reconcile.
func (n *node) claim(ctx context.Context, ensured map[string]bool, rows []int32, resync bool) *claimed {
	result := &claimed{}
	release, err := n.env.Slots.read(ctx)
	if err != nil {
		result.err = err
		return result
	}
	defer release()
	tenants := n.env.Tenants
	if len(tenants) == 0 {
		if tenants, result.err = n.env.Store.Tenants(ctx); result.err != nil {
			return result
		}
	}
	var fresh []string
	for _, t := range tenants {
		if !ensured[t] {
			fresh = append(fresh, t)
		}
	}
	if len(fresh) > 0 {
		if result.err = n.env.Store.Ensure(ctx, fresh, n.env.Node.Projections); result.err != nil {
			return result
		}
	}
	result.tenants = fresh
	if result.leases, result.err = n.env.Store.Claim(ctx, n.env.Node, tenants, claimMost); result.err != nil {
		return result
	}
	if resync {
		if result.owned, result.err = n.env.Store.Owned(ctx, n.env.Node); result.err != nil {
			return result
		}
	}
	if len(rows) > 0 {
		result.paused, result.err = n.env.Store.Paused(ctx, rows)
	}
	return result
}

func (n *node) claimed(ctx actor.Context, msg *claimed) {
	n.claiming = false
	for _, t := range msg.tenants {
		n.ensured[t] = true
	}
	if len(msg.leases) > 0 {
		n.log.Info("leases claimed", zap.Int("leases", len(msg.leases)))
	}
	if leases := append(msg.leases, msg.owned...); len(leases) > 0 {
		for _, l := range leases {
			n.owned[l.Row] = true
		}
		ctx.Send(ctx.Parent(), &messages.Claimed{Leases: leases})
	}
	switch {
	case msg.err != nil:
		n.resync = 0
		n.log.Warn("claiming leases failed; it is tried again", zap.Error(msg.err))
		n.env.Board.publishSession(func(e *SessionEntry) { e.ClaimErr = msg.err })
		return
	case msg.paused != nil:
		ctx.Send(ctx.Parent(), &messages.WantedStates{Paused: msg.paused})
	}
	n.env.Board.publishSession(func(e *SessionEntry) { e.ClaimErr, e.Claims = nil, e.Claims+1 })
	if n.again || len(msg.leases) == claimMost {
		n.reconcile(ctx)
	}
}

// move advances the gathered checkpoints.
func (n *node) move(ctx actor.Context) {
	n.flush = nil
	if n.moving || len(n.advances) == 0 {
		return
	}
	n.moving = true
	requests := n.advances
	n.advances = nil
	n.env.run(ctx.Self(), n.env.Timing.Call, func(ctx context.Context) any {
		result := &moved{requests: requests}
		release, err := n.env.Slots.read(ctx)
		if err != nil {
			result.err = err
			return result
		}
		defer release()
		advances := make([]projection.Advance, len(requests))
		for i, r := range requests {
			advances[i] = r.advance
		}
		result.rows, result.err = n.env.Store.Advance(ctx, advances)
		return result
	})
}

func (n *node) moved(ctx actor.Context, msg *moved) {
	n.moving = false
	for _, r := range msg.requests {
		ctx.Send(r.from, &messages.Advanced{To: r.advance.To, Moved: msg.rows[r.advance.Lease.Row], Err: msg.err})
	}
	if len(n.advances) > 0 {
		n.move(ctx)
	}
}

// look looks at the heads of a slice of the tenants: it finds what no notification told of. The slices of a round are
// spread over the interval.
func (n *node) look(ctx actor.Context) {
	marks := n.env.Feeds.marks()
	parts := max(1, (len(marks)+pollSlice-1)/pollSlice)
	n.poll = n.env.after(n.env.Timing.Poll/time.Duration(parts), ctx.Self(), &pollDue{})
	if n.polling || len(n.heads) == 0 {
		return
	}
	n.polling = true
	slice := n.heads[:min(pollSlice, len(n.heads))]
	n.heads = n.heads[len(slice):]
	n.env.run(ctx.Self(), n.env.Timing.Call, func(ctx context.Context) any {
		release, err := n.env.Slots.read(ctx)
		if err != nil {
			return &looked{err: err}
		}
		defer release()
		heads, err := n.env.Store.Heads(ctx, slice)
		return &looked{heads: heads, marks: marks, err: err}
	})
}

func (n *node) looked(_ actor.Context, msg *looked) {
	n.polling = false
	if msg.err != nil {
		n.log.Debug("looking at heads failed", zap.Error(msg.err))
		return
	}
	n.env.Feeds.compare(msg.heads, msg.marks)
}

// jittered keeps nodes from doing the same at the same time.
func (n *node) jittered(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}
