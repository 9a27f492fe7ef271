package actors

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/ownership"
	"github.com/millrace-go/millrace/messages"
)

// looksTogether is how many nodes look at the others as often as they are told to. Larger fleets share that number of
// looks: each finds out as soon, since whoever sees a death first tells the others.
const looksTogether = 10

// lookGather is how long notices of nodes that come and go are gathered for one look.
const lookGather = 50 * time.Millisecond

// watch looks at the other nodes over one session. What it saw ends with the session.
type watch struct {
	deps    *Deps
	log     *zap.Logger
	session engine.Session
	send    func(any)
	deaths  *ownership.DeathWatch
	found   *engine.Fleet // nil before the first look
	due     time.Time
}

func newWatch(deps *Deps, log *zap.Logger, session engine.Session, send func(any)) *watch {
	return &watch{deps: deps, log: log, session: session, send: send, deaths: ownership.NewDeathWatch(deps.Timing.Confirm)}
}

// callTime bounds a heartbeat or a look: a lost one must leave time for another before the leases run out, and an end of the
// runtime waits for it.
func callTime(deps *Deps) time.Duration {
	return min(5*time.Second, max(100*time.Millisecond, deps.Node.LeaseDuration/2))
}

// soon brings the next look forward. Where notices come thick, one look is for many.
func (w *watch) soon() {
	if at := time.Now().Add(lookGather); at.Before(w.due) {
		w.due = at
	}
}

// look tells of nodes that came or went, and buries the dead.
func (w *watch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime(w.deps))
	defer cancel()
	found, err := w.session.ListPeers(ctx)
	if err != nil {
		return err
	}
	at := time.Now()
	dead, again := w.deaths.Look(at, found.Peers)
	for _, p := range found.Peers {
		if !slices.Contains(dead, p.ID) {
			continue
		}
		buried, err := w.session.MarkDead(ctx, p)
		if err != nil {
			return err
		}
		if buried {
			w.log.Info("node declared dead, session lock gone", zap.String("node", p.ID))
		}
	}
	if again == 0 {
		again = w.deps.Timing.ListPeers * time.Duration(1+len(found.Peers)/looksTogether)
	}
	w.due = at.Add(again)
	slices.SortFunc(found.Peers, func(a, b engine.Peer) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(found.Members, func(a, b engine.Member) int { return strings.Compare(a.ID, b.ID) })
	if w.found == nil || w.changed(found) {
		w.found = &found
		w.send(&messages.FleetChanged{Found: found})
	}
	return nil
}

// changed tells whether nodes came or went. What a node can run it says when it comes.
func (w *watch) changed(found engine.Fleet) bool {
	return !slices.EqualFunc(w.found.Peers, found.Peers, func(a, b engine.Peer) bool { return a.ID == b.ID }) ||
		!slices.EqualFunc(w.found.Members, found.Members, func(a, b engine.Member) bool { return a.ID == b.ID })
}
