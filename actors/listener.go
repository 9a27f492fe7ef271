package actors

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
)

// listener owns the node's session connection. It wakes the feed that a notification concerns. Other notifications, heartbeats
// and the state of the connection go to the node.
type listener struct {
	deps   *Deps
	log    *zap.Logger
	cancel context.CancelFunc
	// session and fleet are what the node was sent last. session is nil while there is no connection.
	session *messages.SessionUp
	fleet   *messages.FleetChanged
}

// NewListener returns the listener of a node.
func NewListener(deps *Deps) *actor.Props {
	return Props("listener", deps.Log, &listener{deps: deps, log: deps.Log})
}

func (l *listener) Start(ctx actor.Context) {
	self := ctx.Self()
	// The session and its heartbeats continue until all actors have stopped: cancelled work may take a while to end, and no
	// fence holds back what the handler of a delivery does meanwhile.
	life, cancel := context.WithCancel(l.deps.registered)
	l.cancel = cancel
	l.deps.Own(func() { l.listen(life, func(msg any) { l.deps.System.Root.Send(self, msg) }) })
}

func (l *listener) Stop(actor.Context) {
	l.deps.Registry.publishSession(func(e *SessionEntry) { e.Connected = false })
	l.cancel()
}

func (l *listener) Handle(ctx actor.Context, msg any) {
	switch m := msg.(type) {
	case *messages.Notified:
		if !m.Notice.Control {
			l.deps.Feeds.Wake(m.Notice.Tenant)
			return
		}
	case *messages.FleetChanged:
		l.fleet = m
	case *messages.SessionUp:
		l.session = m
		if m.Again {
			l.log.Info("session connection restored")
		}
		l.deps.Registry.publishSession(func(e *SessionEntry) {
			e.Connected, e.Pooled, e.Since, e.Err = true, m.Pooled, time.Now(), nil
		})
	case *messages.SessionLost:
		l.session = nil
		l.deps.Registry.publishSession(func(e *SessionEntry) {
			if e.Connected {
				l.log.Warn("session connection lost", zap.Error(m.Err))
				e.Since = time.Now()
			}
			e.Connected, e.Err = false, m.Err
		})
	case *messages.HeartbeatSent:
		l.deps.Registry.publishSession(func(e *SessionEntry) { e.HeartbeatSent = m.At })
	case *messages.Report:
		l.report(ctx)
		return
	default:
		return
	}
	ctx.Send(ctx.Parent(), msg)
}

// report sends to a restarted node what the last one was sent.
func (l *listener) report(ctx actor.Context) {
	if l.session == nil {
		return
	}
	if l.fleet != nil {
		ctx.Send(ctx.Parent(), l.fleet)
	}
	ctx.Send(ctx.Parent(), &messages.SessionUp{Again: true, Pooled: l.session.Pooled})
}

// listen keeps a session connection until ctx ends.
func (l *listener) listen(ctx context.Context, send func(msg any)) {
	delays := backoff.New(50*time.Millisecond, min(500*time.Millisecond, max(50*time.Millisecond, l.deps.Node.LeaseDuration/4)))
	for again := false; ctx.Err() == nil; {
		started := time.Now()
		session, err := l.connect(ctx)
		if err == nil {
			peers := newPeers(l.deps, session, send)
			send(&messages.HeartbeatSent{At: started}) // by its registration
			if err = peers.check(ctx); err == nil {
				delays.Reset()
				send(&messages.SessionUp{Again: again, Pooled: session.Pooled()})
				again = true
				err = l.serve(ctx, session, peers, send)
			}
			l.end(ctx, session)
		}
		if ctx.Err() != nil {
			return
		}
		send(&messages.SessionLost{Err: err})
		_ = delays.Wait(ctx)
	}
}

// end closes a session. At the end of the runtime it also deregisters the node. A node that only lost its connection, or whose
// listener is restarted, is as alive as its heartbeat.
func (l *listener) end(ctx context.Context, session engine.Session) {
	ended := l.deps.accept.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var err error
	if ended {
		err = session.Deregister(ctx)
	}
	if err = errors.Join(err, session.Close(ctx)); err != nil && ended {
		l.log.Debug("closing the session connection failed", zap.Error(err))
	}
}

// connect takes at most LeaseDuration: if the network drops everything, the next try may get through.
func (l *listener) connect(ctx context.Context) (engine.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, min(l.deps.Timing.QueryTimeout, max(time.Second, l.deps.Node.LeaseDuration)))
	defer cancel()
	return l.deps.Store.Connect(ctx, l.deps.Node)
}

// serve waits for notifications. In between it sends heartbeats and checks the other nodes. It returns when the connection is
// lost, or ctx ends.
func (l *listener) serve(ctx context.Context, session engine.Session, peers *peers, send func(msg any)) error {
	heartbeat := time.Now().Add(l.deps.Timing.HeartbeatInterval)
	for {
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
			send(&messages.Notified{Notice: notice})
			if notice.Nodes {
				peers.checkSoon()
			}
		case !due:
			return err
		}
		if at := time.Now(); !at.Before(heartbeat) {
			if err := l.heartbeat(ctx, session, send); err != nil {
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

// heartbeat sends a heartbeat, unless the pool has not worked for LeaseDuration: such a node must not keep its leases from
// others.
func (l *listener) heartbeat(ctx context.Context, session engine.Session, send func(msg any)) error {
	if l.deps.Registry.poolFailingFor(l.deps.Node.LeaseDuration) {
		l.log.Debug("heartbeat withheld, connection pool unusable")
		return nil
	}
	// A statement that is cancelled closes the connection, and the node could not deregister.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionTimeout(l.deps))
	defer cancel()
	at := time.Now()
	if err := session.Heartbeat(ctx); err != nil {
		return err
	}
	send(&messages.HeartbeatSent{At: at})
	return nil
}

// sessionTimeout limits a heartbeat, or a check of the other nodes. If one is lost, time is left for another before the leases
// expire. The end of the runtime waits for it.
func sessionTimeout(deps *Deps) time.Duration {
	return min(5*time.Second, max(100*time.Millisecond, deps.Node.LeaseDuration/2))
}
