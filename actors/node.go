package actors

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
)

const (
	// gather is how long checkpoints to be advanced are gathered for one statement.
	gather = 20 * time.Millisecond
	// pollSlice is how many tenants' heads are looked at in one go.
	pollSlice = 250
)

// node claims leases, follows their projections' wanted states, polls the heads of its tenants, and moves checkpoints of
// many projections in one statement.
type node struct {
	env *Deps
	log *zap.Logger

	draining bool
	up       bool // the session stands: the node is registered
	pooled   bool // and no notices arrive over it
	beat     time.Time
	// judge is when the node may take others for dead because their heartbeats ran out.
	judge      time.Time
	neighbours []engine.Member
	ensured    map[string]bool
	in         engine.Incarnation // of the server in which they were ensured; 0 before it is known
	slice      int                // how many rows of projections are made in one transaction
	owned      map[int32]owned
	leaving    map[int32]bool // of these, the ones that are being given back
	claiming   bool
	again      bool
	rebalance  bool // nodes have come or gone since the shares were worked out last
	resync     int  // how many more looks until all owned leases are read, since an answer may have been lost
	timer      *time.Timer
	lastLook   time.Time // when it was last looked for free leases

	changed map[int32]bool // of which leases the wanted states are to be read, and whether somebody asked for another
	reading bool

	confirm bool // whether the projections are handed the leases that are read next

	leases  []leaseRequest // to be read next
	loading bool

	advances []request
	moving   bool
	flush    *time.Timer

	heads   []string // tenants whose heads are still to be polled in this round
	polling bool
	hurry   bool // whether this round is not spread over the interval
	poll    *time.Timer
}

// owned is a lease that the node holds.
type owned struct {
	seat  engine.LeaseRef
	epoch int64
}

type request struct {
	from    *actor.PID
	advance engine.Advance
	op      int
}

// NewNode makes the node's actor. Its parent takes the leases that it claims.
func NewNode(env *Deps) *actor.Props {
	return Props("node", env.Log, &node{env: env, log: env.Log, ensured: make(map[string]bool), slice: ensureMost,
		owned: make(map[int32]owned), leaving: make(map[int32]bool), changed: make(map[int32]bool)})
}

// What the node's work posts back.
type (
	moved struct {
		requests []request
		rows     map[int32]bool
		err      error
	}
	looked struct {
		asked []string
		heads engine.Heads
		marks map[string]int64
		err   error
	}
	flushDue struct{}
	pollDue  struct{}
	pollNext struct{}
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
		n.up, n.pooled, n.resync = true, msg.Pooled, 0
		if msg.Again || len(n.env.Feeds.marks()) > 0 { // or this actor was started again
			n.missed(ctx)
		}
		n.reconcile(ctx)
	case *messages.SessionLost:
		n.up = false
	case *messages.Drain:
		n.leave(ctx)
	case *messages.Neighbours:
		n.neighbours, n.rebalance = msg.Found.Members, true
		n.reconcile(ctx)
	case *messages.Notified:
		row := msg.Notice.Row
		if row != 0 {
			n.changed[row] = n.changed[row] || !msg.Notice.Commanded
			n.readChanged(ctx)
		}
		if _, owned := n.owned[row]; !owned && !msg.Notice.Nodes && !msg.Notice.Commanded {
			n.soon(ctx)
		}
	case *messages.Reconcile:
		n.reconcile(ctx)
	case *messages.Ended:
		if row := msg.Lease.Row; n.owned[row].epoch == msg.Lease.Epoch && n.owned[row].seat.ID == msg.Lease.ID {
			delete(n.owned, row)
			delete(n.leaving, row)
		}
		if msg.Reason != nil {
			n.resync = 0
		}
		n.reconcile(ctx)
	case *messages.Beaten:
		n.beaten(ctx, msg.At)
	case *claimed:
		n.claimed(ctx, msg)
	case *readStates:
		n.readStates(ctx, msg)
	case *messages.LeaseRequest:
		n.leases = append(n.leases, leaseRequest{ctx.Sender(), msg})
		n.readLeases(ctx)
	case *leasesRead:
		n.leasesRead(ctx, msg)
	case *messages.AdvanceRequest:
		n.advances = append(n.advances, request{ctx.Sender(), msg.Advance, msg.Op})
		if n.flush == nil && !n.moving {
			n.flush = n.env.after(gather, ctx.Self(), &flushDue{})
		}
	case *flushDue:
		n.move(ctx)
	case *moved:
		n.moved(ctx, msg)
	case *pollDue:
		if n.hurry = n.hurry && len(n.heads) > 0; len(n.heads) == 0 {
			n.heads = slices.Collect(maps.Keys(n.env.Feeds.marks()))
		}
		n.look(ctx)
	case *pollNext:
		if n.hurry = n.hurry && len(n.heads) > 0; n.hurry {
			n.look(ctx)
		}
	case *looked:
		n.looked(ctx, msg)
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
	n.env.run(ctx.Self(), n.env.Timing.QueryTimeout, func(ctx context.Context) any {
		result := &moved{requests: requests}
		release, err := n.env.Limiter.read(ctx)
		if err != nil {
			result.err = err
			return result
		}
		defer release()
		advances := make([]engine.Advance, len(requests))
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
		ctx.Send(r.from, &messages.Advanced{Op: r.op, Moved: msg.rows[r.advance.Lease.Row]})
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
	stopTimer(n.poll)
	n.poll = n.env.after(n.env.Timing.Poll/time.Duration(parts), ctx.Self(), &pollDue{})
	if n.polling || len(n.heads) == 0 {
		return
	}
	n.polling = true
	slice := n.heads[:min(pollSlice, len(n.heads))]
	n.heads = n.heads[len(slice):]
	n.env.run(ctx.Self(), n.env.Timing.QueryTimeout, func(ctx context.Context) any {
		release, err := n.env.Limiter.read(ctx)
		if err != nil {
			return &looked{err: err}
		}
		defer release()
		heads, err := n.env.Store.Heads(ctx, slice)
		return &looked{asked: slice, heads: heads, marks: marks, err: err}
	})
}

func (n *node) looked(ctx actor.Context, msg *looked) {
	n.polling = false
	if n.hurry {
		defer ctx.Send(ctx.Self(), &pollNext{})
	}
	if msg.err != nil {
		n.log.Debug("reading heads failed", zap.Error(msg.err))
		return
	}
	for tenant, err := range msg.heads.Failed {
		n.log.Debug("reading the head of a tenant failed", zap.String("tenant", tenant), zap.Error(err))
	}
	n.learned(ctx, msg.heads.Incarnation)
	n.env.Feeds.compare(msg.heads, msg.marks)
	n.env.Feeds.wakeMissing(msg.asked, msg.heads)
}

// jittered keeps nodes from doing the same at the same time.
func (n *node) jittered(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}
