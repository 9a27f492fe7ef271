package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/pgstore/internal/session"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

// keepalives let the server notice within some 20 s that the session's client is gone, where nothing told it.
const keepalives = "set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3; "

// nodeSession is a node's one connection outside the pool. It listens, it carries the heartbeat, and it holds the session
// lock by which others can see sooner than by the heartbeat that the node is gone.
type nodeSession struct {
	store *Store
	node  engine.Node
	conn  *pgx.Conn
	// pooled means that a pooler lends the server's sessions to this connection, one for each transaction.
	pooled bool
}

// Pooled tells that a pooler stands between, so that nothing of the session lasts: no LISTEN and no lock.
func (s *nodeSession) Pooled() bool { return s.pooled }

// Connect opens the node's session connection, registers the node, takes its session lock and listens.
func (s port) Connect(ctx context.Context, node engine.Node) (engine.Session, error) {
	conn, err := s.dial(ctx, s.opts.SessionDSN)
	if err != nil {
		return nil, fmt.Errorf("open the session connection: %w", storeFault(err))
	}
	session := &nodeSession{store: s.Store, node: node, conn: conn}
	if err := session.setUp(ctx); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("set up the session connection: %w", storeFault(err))
	}
	return session, nil
}

func (s *nodeSession) setUp(ctx context.Context) error {
	c := s.store.control
	// LISTEN takes names and no parameters, so that it is put together here.
	listen := "listen " + sqltext.Name(c.wakeChannel) + "; listen " + sqltext.Name(c.controlChannel)
	pooling, err := session.FindPooling(ctx, s.conn, func(ctx context.Context) (*pgx.Conn, error) { return s.store.dial(ctx, s.store.opts.SessionDSN) })
	if err != nil {
		return err
	}
	if err := s.store.checkIncarnation(ctx, s.conn); err != nil {
		return err
	}
	if s.pooled = pooling.Lends; s.pooled {
		// Settings, LISTEN and the lock would belong to any session of the pooler, and so would the session that is ended for
		// the lock.
		s.store.log.Warn("pooler in front of the session connection",
			zap.String("effect", "notifications do not arrive, and the node has no session lock"), zap.String("remedy", "set Options.SessionDSN to the server itself"))
		return s.Heartbeat(ctx)
	}
	if _, err := s.conn.Exec(ctx, keepalives+listen); err != nil {
		return err
	}
	if _, err := s.conn.Exec(ctx, queries.Text("reset_session")); err != nil {
		return err
	}
	key := s.lockKey()
	var locked bool
	if err := s.conn.QueryRow(ctx, queries.Text("session_lock"), pgx.QueryExecModeExec, key).Scan(&locked); err != nil {
		return err
	}
	if !locked {
		// The server has not noticed that this node's last session is gone, and where the network swallowed it may not for
		// hours. The node's id is its own, so that nobody else's session is ended.
		if _, err := s.conn.Exec(ctx, queries.Text("end_previous_session"), pgx.QueryExecModeExec, key); err == nil {
			return &engine.Fault{Class: engine.Infrastructure, Err: errors.New("the node's session lock was still held by its last session, which was ended")}
		}
		s.store.log.Warn("ending the previous session of the node failed, running without a session lock", zap.String("node", s.node.ID))
	}
	if _, err := s.conn.Exec(ctx, c.sql("delete_silent_nodes"), pgx.QueryExecModeExec); err != nil {
		return err
	}
	return s.Heartbeat(ctx)
}

// Next waits for the next notice and leaves the session usable when ctx is done.
func (s *nodeSession) Next(ctx context.Context) (engine.Notice, error) {
	n, err := s.conn.WaitForNotification(ctx)
	switch {
	case err != nil && ctx.Err() != nil && !s.conn.IsClosed():
		return engine.Notice{}, ctx.Err()
	case err != nil:
		return engine.Notice{}, fmt.Errorf("wait for notifications: %w", storeFault(err))
	case n.Channel == s.store.control.controlChannel:
		payload, commanded := strings.CutPrefix(n.Payload, "command ")
		row, _ := strconv.ParseInt(payload, 10, 32)
		return engine.Notice{Control: true, Row: int32(row), Commanded: commanded, Nodes: payload == "nodes"}, nil
	}
	return engine.Notice{Tenant: n.Payload}, nil
}

// Heartbeat extends the node's leases by the server's clock.
func (s *nodeSession) Heartbeat(ctx context.Context) error {
	_, err := s.conn.Exec(ctx, s.store.control.sql("heartbeat"), pgx.QueryExecModeExec, s.node.ID, s.node.Projections, nonNil(s.node.Tenants),
		s.lockKey(), s.node.LeaseDuration.Microseconds())
	return failed(err, "heartbeat")
}

// lockKey is the key of the node's session lock.
func (s *nodeSession) lockKey() int64 {
	return lockKey("millrace node " + s.store.control.name + " " + s.node.ID)
}

// Look tells which other nodes are alive by their heartbeats, and which of them hold their session locks.
func (s *nodeSession) ListPeers(ctx context.Context) (found engine.Fleet, err error) {
	rows, _ := s.conn.Query(ctx, s.store.control.sql("list_peers"), pgx.QueryExecModeExec, s.node.ID)
	var member engine.Member
	var leaving, locked bool
	var beat time.Time
	_, err = pgx.ForEachRow(rows, []any{&member.ID, &member.Projections, &member.Tenants, &leaving, &locked, &beat}, func() error {
		found.Peers = append(found.Peers, engine.Peer{ID: member.ID, Locked: locked, Beat: beat})
		if !leaving {
			found.Members = append(found.Members, member)
		}
		return nil
	})
	return found, failed(err, "look at the other nodes")
}

// Bury ends the heartbeat of a node whose session lock is gone, and tells the others.
func (s *nodeSession) MarkDead(ctx context.Context, node engine.Peer) (bool, error) {
	tag, err := s.conn.Exec(ctx, s.store.control.sql("mark_dead"), pgx.QueryExecModeExec, node.ID, s.store.control.controlChannel, node.Beat)
	return tag.RowsAffected() == 1, failed(err, "bury node %s", node.ID)
}

// Depart takes the node off the list.
func (s *nodeSession) Deregister(ctx context.Context) error {
	if s.conn.IsClosed() {
		return nil
	}
	_, err := s.conn.Exec(ctx, s.store.control.sql("deregister"), pgx.QueryExecModeExec, s.node.ID)
	return failed(err, "deregister")
}

// Close ends the connection.
func (s *nodeSession) Close(ctx context.Context) error { return s.conn.Close(ctx) }
