package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/rounds"
)

// heads is the part of the node that polls the heads of its tenants, as rounds.Heads decides.
type heads struct {
	deps   *Deps
	rounds *rounds.Heads
	timer  *time.Timer
	// seen is called with the incarnation of the server in which heads were read.
	seen func(ctx actor.Context, in engine.Incarnation)
}

// poll is called when the next heads of a round are due.
func (h *heads) poll(ctx actor.Context) {
	if h.rounds.Over() {
		scope := rounds.Due
		if session := h.deps.Registry.Session(); !session.Connected || session.Pooled {
			scope = rounds.All // no notifications arrive
		}
		h.rounds.Begin(h.deps.Feeds, scope, time.Now())
	}
	h.read(ctx)
}

// pollAll reads the heads of all tenants, since notifications may have been lost.
func (h *heads) pollAll(ctx actor.Context) {
	h.rounds.Begin(h.deps.Feeds, rounds.AllNow, time.Now())
	h.read(ctx)
}

func (h *heads) read(ctx actor.Context) {
	tenants, after := h.rounds.Next()
	stopTimer(h.timer)
	h.timer = h.deps.After(ctx, after, h.poll)
	if len(tenants) == 0 {
		return
	}
	marks, began := h.deps.Feeds.marks(tenants), time.Now()
	var heads engine.Heads
	h.deps.query(ctx, func(ctx context.Context) (err error) {
		heads, err = h.deps.Events.Heads(ctx, tenants)
		return err
	}, func(ctx actor.Context, err error) {
		var unknown []string
		if err != nil {
			h.deps.Log.Debug("reading heads failed", zap.Error(err))
		} else {
			h.logFailed(heads.Failed)
			h.seen(ctx, heads.Incarnation)
			unknown = h.deps.Feeds.compare(tenants, marks, heads)
		}
		if h.rounds.Read(h.deps.Feeds, began, unknown) {
			h.read(ctx)
		}
	})
}

func (h *heads) logFailed(failed map[string]error) {
	for tenant, err := range failed {
		h.deps.Log.Debug("reading the head of a tenant failed", zap.String("tenant", tenant), zap.Error(err))
	}
}
