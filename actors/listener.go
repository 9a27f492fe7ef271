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

// listener owns the node's session connection: it wakes the feed that a notification concerns, and reports to the node, by way
// of the supervisor, other notifications, heartbeats and the loss of the connection.
type listener struct {
	deps   *Deps
	log    *zap.Logger
	cancel context.CancelFunc
	// session and neighbours are what was reported last; session is nil while there is no connection.
	session *messages.SessionUp
	fleet   *messages.FleetChanged
}

// NewListener makes the listener of a node.
func NewListener(deps *Deps) *actor.Props {
	return Props("listener", deps.Log, &listener{deps: deps, log: deps.Log})
}

func (l *listener) Start(ctx actor.Context) {
	self := ctx.Self()
	// Work that was given up may take a while to end, and what a handler of a delivery does then has no fence. So the session
	// and its heartbeats go on until all actors are at rest.
	life, cancel := context.WithCancel(l.deps.present)
	l.cancel = cancel
	l.deps.work.Add(1)
	go func() {
		defer l.deps.work.Done()
		l.listen(life, self)
	}()
}

// Stop ends the listener. At the end of the runtime the node departs with it: from then on others may claim its leases.
func (l *listener) Stop(actor.Context) {
	l.deps.Registry.publishSession(func(e *SessionEntry) { e.Connected = false })
	l.cancel()
}

func (l *listener) Handle(ctx actor.Context, msg any) {
	switch msg := msg.(type) {
	case *messages.Notified:
		if msg.Notice.Control {
			ctx.Send(ctx.Parent(), msg)
		} else {
			l.deps.Feeds.Wake(msg.Notice.Tenant)
		}
	case *messages.FleetChanged:
		l.fleet = msg
		ctx.Send(ctx.Parent(), msg)
	case *messages.SessionUp:
		l.session = msg
		l.publish(msg)
		ctx.Send(ctx.Parent(), msg)
	case *messages.SessionLost:
		l.session = nil
		l.publish(msg)
		ctx.Send(ctx.Parent(), msg)
	case *messages.Beaten:
		l.publish(msg)
		ctx.Send(ctx.Parent(), msg)
	case *messages.Report:
		l.report(ctx)
	}
}

// report repeats to a node that was started again what the last one knew.
func (l *listener) report(ctx actor.Context) {
	if l.session == nil {
		return
	}
	if l.fleet != nil {
		ctx.Send(ctx.Parent(), l.fleet)
	}
	ctx.Send(ctx.Parent(), &messages.SessionUp{Again: true, Pooled: l.session.Pooled})
}

func (l *listener) publish(msg any) {
	l.deps.Registry.publishSession(func(e *SessionEntry) {
		switch msg := msg.(type) {
		case *messages.SessionUp:
			if msg.Again {
				l.log.Info("session connection restored")
			}
			e.Connected, e.Pooled, e.Since, e.Err = true, msg.Pooled, time.Now(), nil
		case *messages.SessionLost:
			if e.Connected {
				l.log.Warn("session connection lost", zap.Error(msg.Err))
				e.Since = time.Now()
			}
			e.Connected, e.Err = false, msg.Err
		case *messages.Beaten:
			e.LastBeat = msg.At
		}
	})
}

// listen keeps a session connection until ctx is done. A new one listens before anybody catches up.
func (l *listener) listen(ctx context.Context, self *actor.PID) {
	send := func(msg any) { l.deps.System.Root.Send(self, msg) }
	delays := backoff.New(50*time.Millisecond, min(500*time.Millisecond, max(50*time.Millisecond, l.deps.Node.LeaseDuration/4)))
	for again := false; ctx.Err() == nil; {
		started := time.Now()
		session, err := l.connect(ctx)
		if err == nil {
			watch := newWatch(l.deps, l.log, session, send)
			send(&messages.Beaten{At: started})
			if err = watch.look(ctx); err == nil {
				delays.Reset()
				send(&messages.SessionUp{Again: again, Pooled: session.Pooled()})
				again = true
				err = l.serve(ctx, session, watch, send)
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

// end closes a session. At the end of the runtime the node departs, too. Where only the connection is lost, or the listener is
// started again, the node is as alive as its heartbeat.
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

// connect takes no longer than a lease holds: where the network swallows everything, the next try may get through.
func (l *listener) connect(ctx context.Context) (engine.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, min(l.deps.Timing.QueryTimeout, max(time.Second, l.deps.Node.LeaseDuration)))
	defer cancel()
	return l.deps.Store.Connect(ctx, l.deps.Node)
}

// serve waits for notices, and sends heartbeats and looks at the other nodes in between, until the connection is lost or
// ctx is done.
func (l *listener) serve(ctx context.Context, session engine.Session, watch *watch, send func(any)) error {
	beat := time.Now().Add(l.deps.Timing.HeartbeatInterval)
	for {
		next := beat
		if watch.due.Before(next) {
			next = watch.due
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
				watch.soon() // nodes may have come or gone
			}
		case !due:
			return err
		}
		if at := time.Now(); !at.Before(beat) && l.deps.Registry.unwell(l.deps.Node.LeaseDuration) {
			// A node that lives by its session alone, and cannot do anything else, must not keep its leases from others.
			l.log.Debug("heartbeat withheld, connection pool unusable")
			beat = at.Add(l.deps.Timing.HeartbeatInterval)
		} else if !at.Before(beat) {
			// What is cancelled in mid-statement takes the connection along, and the node could not depart.
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime(l.deps))
			err := session.Heartbeat(bounded)
			cancel()
			if err != nil {
				return err
			}
			send(&messages.Beaten{At: at})
			beat = at.Add(l.deps.Timing.HeartbeatInterval)
		}
		if !time.Now().Before(watch.due) {
			if err := watch.look(ctx); err != nil {
				return err
			}
		}
	}
}
