package actors

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/observing"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/observe"
)

// listener owns the node's session connection. It publishes the state of the connection, wakes the feed that a
// notification concerns, and passes on to the node what else arrives.
type listener struct {
	deps   *Deps
	log    *zap.Logger
	cancel context.CancelFunc
}

// post has the listener's actor call fn.
type post func(fn func(ctx actor.Context))

// NewListener returns the listener of a node.
func NewListener(deps *Deps) Behaviour {
	return &listener{deps: deps, log: deps.Log}
}

func (l *listener) Start(ctx actor.Context) {
	self := ctx.Self()
	// The session and its heartbeats continue until all actors have stopped: cancelled work may take a while to end,
	// and no fence holds back what the handler of a delivery does meanwhile.
	life, cancel := context.WithCancel(l.deps.registered)
	l.cancel = cancel
	l.deps.Own(func() { l.listen(life, func(fn func(actor.Context)) { l.deps.call(self, fn) }) })
}

func (l *listener) Stop(actor.Context) {
	l.deps.Registry.session.publish(func(e *SessionEntry) { e.Connected = false })
	l.cancel()
}

// Handle does nothing: the listener reacts to its connection, not to messages.
func (l *listener) Handle(actor.Context, any) {}

func (l *listener) onConnected(ctx actor.Context, again, pooled bool) {
	if again {
		l.log.Info("session connection restored")
	}
	changed := observe.Session{Connected: true, Again: again, Pooled: pooled}
	l.deps.Registry.session.publish(func(e *SessionEntry) {
		changed.Lasted = e.lasted()
		e.Connected, e.Pooled, e.Since, e.Err = true, pooled, time.Now(), nil
	})
	observing.Call(l.deps.Observer.SessionChanged, changed)
	ctx.Send(ctx.Parent(), &messages.SessionUp{Again: again})
}

func (l *listener) onLost(err error) {
	changed, lost := observe.Session{Again: true, Err: err}, false
	l.deps.Registry.session.publish(func(e *SessionEntry) {
		lost = e.Connected
		if lost {
			changed.Pooled, changed.Lasted = e.Pooled, e.lasted()
			e.Since = time.Now()
		}
		e.Connected, e.Err = false, err
	})
	if lost {
		l.log.Warn("session connection lost", zap.Error(err))
		observing.Call(l.deps.Observer.SessionChanged, changed)
	}
}

func (l *listener) heartbeatSent(ctx actor.Context, at time.Time) {
	l.deps.Registry.session.publish(func(e *SessionEntry) { e.HeartbeatSent = at })
	ctx.Send(ctx.Parent(), &messages.HeartbeatSent{At: at})
}

// onFleetChanged is called with the fleet, also before onConnected, after which the node searches for leases anyway.
func (l *listener) onFleetChanged(ctx actor.Context, fleet engine.Fleet) {
	up := false
	l.deps.Registry.session.publish(func(e *SessionEntry) { e.Members, up = fleet.Members, e.Connected })
	if up {
		ctx.Send(ctx.Parent(), &messages.FleetChanged{})
	}
}

func (l *listener) onNotified(ctx actor.Context, notice engine.Notice) {
	if notice.Control {
		ctx.Send(ctx.Parent(), &messages.Notified{Notice: notice})
	} else {
		l.deps.Feeds.Wake(notice.Tenant, notice.Position)
	}
}

// listen keeps a session connection until ctx ends.
func (l *listener) listen(ctx context.Context, post post) {
	delays := backoff.New(50*time.Millisecond, min(500*time.Millisecond,
		max(50*time.Millisecond, l.deps.Node.LeaseDuration/4)))
	for again := false; ctx.Err() == nil; {
		l.deps.Registry.Pulse(SessionLoop)
		served, err := l.serveSession(ctx, again, post)
		if served {
			delays.Reset()
			again = true
		}
		if ctx.Err() != nil {
			return
		}
		post(func(actor.Context) { l.onLost(err) })
		_ = delays.Wait(ctx)
	}
}

// serveSession makes a session connection and serves it until it is lost. served is false if it could not be used.
// again reports whether there was a session before it.
func (l *listener) serveSession(ctx context.Context, again bool, post post) (served bool, err error) {
	started := time.Now()
	session, err := l.connect(ctx)
	if err != nil {
		return false, err
	}
	defer l.end(ctx, session)
	peers := newPeers(l.deps, session, func(fleet engine.Fleet) {
		post(func(ctx actor.Context) { l.onFleetChanged(ctx, fleet) })
	})
	post(func(ctx actor.Context) { l.heartbeatSent(ctx, started) }) // the registration counts as one
	if err := peers.check(ctx); err != nil {
		return false, err
	}
	post(func(ctx actor.Context) { l.onConnected(ctx, again, session.Pooled()) })
	return true, l.serve(ctx, session, peers, post)
}

// end closes a session. At the end of the runtime it also deregisters the node. A node that only lost its connection,
// or whose listener is restarted, is as alive as its heartbeat.
func (l *listener) end(ctx context.Context, session engine.Session) {
	ended := l.deps.accept.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var err error
	if ended {
		err = session.Deregister(ctx)
	}
	err = errors.Join(err, session.Close(ctx))
	if err != nil && ended {
		l.log.Debug("closing the session connection failed", zap.Error(err))
	}
}

// connect takes at most LeaseDuration: if the network drops everything, the next try may get through.
func (l *listener) connect(ctx context.Context) (engine.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, min(l.deps.Timing.QueryTimeout,
		max(time.Second, l.deps.Node.LeaseDuration)))
	defer cancel()
	return l.deps.Ownership.Connect(ctx, l.deps.Node)
}

// serve waits for notifications. In between it sends heartbeats and checks the other nodes. It returns when the
// connection is lost, or ctx ends.
func (l *listener) serve(ctx context.Context, session engine.Session, peers *peers, post post) error {
	heartbeat := time.Now().Add(l.deps.Timing.HeartbeatInterval)
	for {
		l.deps.Registry.Pulse(SessionLoop)
		next := heartbeat
		if peers.due.Before(next) {
			next = peers.due
		}
		until, cancel := context.WithDeadline(ctx, next)
		notice, err := session.Next(until)
		due := until.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			post(func(ctx actor.Context) { l.onNotified(ctx, notice) })
			if notice.Nodes {
				peers.checkSoon()
			}
		case !due:
			return err
		}
		if at := time.Now(); !at.Before(heartbeat) {
			if err := l.heartbeat(ctx, session, post); err != nil {
				return err
			}
			heartbeat = at.Add(l.deps.Timing.HeartbeatInterval)
		}
		if !time.Now().Before(peers.due) {
			if err := peers.check(ctx); err != nil {
				return err
			}
		}
	}
}

// heartbeat sends a heartbeat, unless the pool has not worked for LeaseDuration: such a node must not keep its leases
// from others.
func (l *listener) heartbeat(ctx context.Context, session engine.Session, post post) error {
	if l.deps.Registry.session.poolFailingFor(l.deps.Node.LeaseDuration) {
		l.log.Debug("heartbeat withheld, connection pool unusable")
		return nil
	}
	// A statement that is cancelled closes the connection, and the node could not deregister.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionTimeout(l.deps))
	defer cancel()
	at := time.Now()
	l.deps.Registry.sample(at)
	if err := session.Heartbeat(ctx, l.deps.Registry.Summary()); err != nil {
		return err
	}
	post(func(ctx actor.Context) { l.heartbeatSent(ctx, at) })
	return nil
}

// sessionTimeout limits a heartbeat, or a check of the other nodes. If one is lost, time is left for another before the
// leases expire. The end of the runtime waits for it.
func sessionTimeout(deps *Deps) time.Duration {
	return min(5*time.Second, max(100*time.Millisecond, deps.Node.LeaseDuration/2))
}
