package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/pgstore/internal/session"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

// keepalives let the server notice within some 20 s that the session's client is gone, even if no packet reports it.
const keepalives = "set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3; "

// nodeSession implements engine.Session. Its session lock shows other nodes that the node is gone, sooner than its
// heartbeat does.
type nodeSession struct {
	db   *database
	node engine.Node
	conn *pgx.Conn
	// members are the other nodes as they registered.
	members map[string]engine.Member
	// summary is the summary that the session has written, empty if none.
	summary string
	// pooled reports whether a pooler gives this connection another session of the server for each transaction.
	pooled bool
}

// listenTo returns a statement, since LISTEN takes no parameters.
func listenTo(channel string) string { return "listen " + sqltext.Name(channel) }

func (s *nodeSession) Pooled() bool { return s.pooled }

// Connect implements engine.Ownership. It also takes the node's session lock.
func (l leases) Connect(ctx context.Context, node engine.Node) (engine.Session, error) {
	conn, err := l.dial(ctx, l.opts.SessionDSN)
	if err != nil {
		return nil, fmt.Errorf("open the session connection: %w", storeFault(err))
	}
	session := &nodeSession{db: l.database, node: node, conn: conn, members: make(map[string]engine.Member)}
	if err := session.setUp(ctx); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("set up the session connection: %w", storeFault(err))
	}
	return session, nil
}

func (s *nodeSession) setUp(ctx context.Context) error {
	c := s.db.control
	listen := listenTo(c.wakeChannel) + "; " + listenTo(c.controlChannel)
	pooling, err := session.FindPooling(ctx, s.conn,
		func(ctx context.Context) (*pgx.Conn, error) { return s.db.dial(ctx, s.db.opts.SessionDSN) })
	if err != nil {
		return err
	}
	if err := s.checkIncarnation(ctx); err != nil {
		return err
	}
	s.pooled = pooling.Lends
	if s.pooled {
		// Settings, LISTEN and the lock would apply to a session that other clients use.
		s.db.log.Warn("pooler in front of the session connection",
			zap.String("effect", "notifications do not arrive, and the node has no session lock"),
			zap.String("remedy", "set Options.SessionDSN to the server itself"))
		return s.register(ctx)
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
		// The server has not noticed that this node's previous session is gone. After a network failure that can take
		// hours. No other node has this node's id, so the session that holds the lock is its own.
		if _, err := s.conn.Exec(ctx, queries.Text("end_previous_session"), pgx.QueryExecModeExec, key); err == nil {
			return &faults.Fault{
				Class: faults.Infrastructure,
				Err:   errors.New("the node's previous session still held its session lock, and was ended"),
			}
		}
		s.db.log.Warn("ending the previous session of the node failed, running without a session lock",
			zap.String("node", s.node.ID), zap.String("name", s.node.Name))
	}
	if _, err := s.conn.Exec(ctx, c.sql("delete_silent_nodes"), pgx.QueryExecModeExec); err != nil {
		return err
	}
	return s.register(ctx)
}

// checkIncarnation creates the server's incarnation if there is none. It returns an error if that would survive a
// crash.
func (s *nodeSession) checkIncarnation(ctx context.Context) error {
	if _, err := s.conn.Exec(ctx, s.db.control.sql("make_incarnation"), pgx.QueryExecModeExec); err != nil {
		return err
	}
	var kept string
	err := s.conn.QueryRow(ctx, s.db.control.sql("incarnation_persistence"), pgx.QueryExecModeExec).Scan(&kept)
	if err == nil && kept != "u" {
		table := s.db.control.quoted + ".incarnation"
		err = &faults.Fault{Class: faults.Configuration,
			Err: fmt.Errorf("the table %s must be UNLOGGED, since it has to be empty after a crash: run alter table %s set unlogged", table, table)}
	}
	return err
}

func (s *nodeSession) Next(ctx context.Context) (engine.Notice, error) {
	n, err := s.conn.WaitForNotification(ctx)
	switch {
	case err != nil && ctx.Err() != nil && !s.conn.IsClosed():
		return engine.Notice{}, ctx.Err()
	case err != nil:
		return engine.Notice{}, fmt.Errorf("wait for notifications: %w", storeFault(err))
	case n.Channel == s.db.control.controlChannel:
		if tenant, ok := strings.CutPrefix(n.Payload, "tenant "); ok {
			return engine.Notice{Control: true, Tenant: tenant}, nil
		}
		payload, commanded := strings.CutPrefix(n.Payload, "command ")
		row, _ := strconv.ParseInt(payload, 10, 32)
		return engine.Notice{Control: true, Row: int32(row), Commanded: commanded, Nodes: payload == "nodes",
			Operations: payload == "operations"}, nil
	}
	tenant, position := announced(n.Payload)
	return engine.Notice{Tenant: tenant, Position: position}, nil
}

// register is a heartbeat of a node that may have no row.
func (s *nodeSession) register(ctx context.Context) error {
	filtered, filters := filterArrays(s.node.Filters)
	_, err := s.conn.Exec(ctx, s.db.control.sql("register"), pgx.QueryExecModeExec, s.node.ID,
		nonNil(s.node.Projections), nonNil(s.node.Tenants),
		filtered, filters, s.lockKey(), s.node.LeaseDuration.Microseconds(), s.node.Name)
	return wrap(err, "register the node")
}

// Heartbeat implements engine.Session. It writes a summary only if the session has not written the same before. If
// other nodes deleted the row of this one, which was silent for long, it registers again.
func (s *nodeSession) Heartbeat(ctx context.Context, summary *engine.NodeSummary) error {
	return wrap(s.heartbeat(ctx, summary), "send heartbeat")
}

func (s *nodeSession) heartbeat(ctx context.Context, summary *engine.NodeSummary) error {
	encoded, err := summary.Encode()
	if err != nil {
		return err
	}
	for again := false; ; again = true {
		var changed any
		if again || encoded != s.summary {
			changed = encoded
		}
		tag, err := s.conn.Exec(ctx, s.db.control.sql("heartbeat"), pgx.QueryExecModeExec, s.node.ID,
			s.node.LeaseDuration.Microseconds(), changed)
		switch {
		case err != nil:
			return err
		case again || tag.RowsAffected() > 0:
			s.summary = encoded
			return nil
		}
		if err := s.register(ctx); err != nil {
			return err
		}
	}
}

// filterArrays returns the columns of nodes for filters.
func filterArrays(filters map[string]engine.TenantFilter) (filtered, entries []string) {
	filtered, entries = []string{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		for _, entry := range filters[name].Entries() {
			filtered, entries = append(filtered, name), append(entries, entry)
		}
	}
	return filtered, entries
}

func (s *nodeSession) lockKey() int64 {
	return lockKey("millrace node " + s.db.control.name + " " + s.node.ID)
}

func (s *nodeSession) ListPeers(ctx context.Context) (found engine.Fleet, err error) {
	rows, _ := s.conn.Query(ctx, s.db.control.sql("list_peers"), pgx.QueryExecModeExec, s.node.ID,
		slices.Collect(maps.Keys(s.members)))
	alive := make(map[string]engine.Member)
	var member engine.Member
	var known, draining, locked bool
	var filtered, filters []string
	var beat int64 // microseconds, since a time as text depends on DateStyle
	columns := []any{
		&member.ID, &known, &member.Name, &member.Projections, &member.Tenants, &filtered, &filters, &draining, &locked,
		&beat,
	}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		if known {
			member = s.members[member.ID]
		} else {
			member.Filters = engine.FiltersOf(filtered, filters)
		}
		alive[member.ID] = member
		found.Peers = append(found.Peers, engine.Peer{ID: member.ID,
			Name: member.Name, Locked: locked, Beat: time.UnixMicro(beat)})
		if !draining {
			found.Members = append(found.Members, member)
		}
		return nil
	})
	if err != nil {
		return engine.Fleet{}, wrap(err, "list peers")
	}
	s.members = alive
	return found, nil
}

func (s *nodeSession) MarkDead(ctx context.Context, node engine.Peer) (bool, error) {
	tag, err := s.conn.Exec(ctx, s.db.control.sql("mark_dead"), pgx.QueryExecModeExec, node.ID,
		s.db.control.controlChannel, node.Beat)
	return tag.RowsAffected() == 1, wrap(err, "mark node %s dead", node.ID)
}

func (s *nodeSession) Deregister(ctx context.Context) error {
	if s.conn.IsClosed() {
		return nil
	}
	_, err := s.conn.Exec(ctx, s.db.control.sql("deregister"), pgx.QueryExecModeExec, s.node.ID)
	return wrap(err, "deregister")
}

func (s *nodeSession) Close(ctx context.Context) error { return s.conn.Close(ctx) }
