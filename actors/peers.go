package actors

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
)

const (
	// checksAtOnce is how many nodes check the others as often as Timing.ListPeers says. Larger fleets share that
	// number of checks. Each node learns of a death as soon, since the node that sees it first notifies the others.
	checksAtOnce = 10
	// peersGatherFor is how long notifications that nodes come and go are gathered for one check.
	peersGatherFor = 50 * time.Millisecond
)

// peers checks the other nodes over one session. What it saw ends with the session.
type peers struct {
	deps    *Deps
	session engine.Session
	changed func(engine.Fleet)
	deaths  *ownership.DeathWatch
	fleet   *engine.Fleet // nil before the first check
	due     time.Time     // of the next check
}

func newPeers(deps *Deps, session engine.Session, changed func(engine.Fleet)) *peers {
	return &peers{deps: deps, session: session, changed: changed, deaths: ownership.NewDeathWatch(deps.Timing.Confirm)}
}

// checkSoon brings the next check forward.
func (p *peers) checkSoon() {
	if at := time.Now().Add(peersGatherFor); at.Before(p.due) {
		p.due = at
	}
}

// check marks dead nodes dead, and reports nodes that came or went.
func (p *peers) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionTimeout(p.deps))
	defer cancel()
	fleet, err := p.session.ListPeers(ctx)
	if err != nil {
		return err
	}
	at := time.Now()
	dead, again := p.deaths.Observe(at, fleet.Peers)
	for _, peer := range fleet.Peers {
		if !slices.Contains(dead, peer.ID) {
			continue
		}
		marked, err := p.session.MarkDead(ctx, peer)
		if err != nil {
			return err
		}
		if marked {
			p.deps.Log.Info("node declared dead, session lock gone", zap.String("node", peer.ID),
				zap.String("name", peer.Name))
		}
	}
	if again == 0 {
		again = p.deps.Timing.ListPeers * time.Duration(1+len(fleet.Peers)/checksAtOnce)
	}
	p.due = at.Add(again)
	slices.SortFunc(fleet.Peers, func(a, b engine.Peer) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(fleet.Members, func(a, b engine.Member) int { return strings.Compare(a.ID, b.ID) })
	if p.fleet == nil || p.differs(fleet) {
		p.fleet = &fleet
		p.changed(fleet)
	}
	return nil
}

// differs reports whether nodes came or went. What a node can run does not change.
func (p *peers) differs(fleet engine.Fleet) bool {
	return !slices.EqualFunc(p.fleet.Peers, fleet.Peers, func(a, b engine.Peer) bool { return a.ID == b.ID }) ||
		!slices.EqualFunc(p.fleet.Members, fleet.Members, func(a, b engine.Member) bool { return a.ID == b.ID })
}
