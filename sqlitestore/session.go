package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/sqlitestore/internal/ownerlock"
)

const (
	// noticeInterval is how often the session polls for commits of other processes.
	noticeInterval = 100 * time.Millisecond
	// lockInterval is how often a session that stands by tries to get the owner lock. After the end of the owner, no
	// projection runs for up to this time.
	lockInterval = 50 * time.Millisecond
)

// nodeSession implements engine.Session. It has the owner lock, or stands by: then its node has no row and no leases,
// and Next tries to get the lock. The node keeps its leases as long as it holds the lock.
type nodeSession struct {
	db   *database
	node engine.Node
	// conn has one connection, since numbers of data_version can be compared on one connection only.
	conn *sql.DB
	// lock is nil while the session stands by. owns reports whether the node is registered as the owner of the file,
	// too.
	lock *ownerlock.Lock
	owns bool
	// owner describes the process that owns the file while the session stands by, as it was logged.
	owner string
	// next is when Next does its periodic work. woken has an element if it should read the notices at once.
	next  time.Time
	woken chan struct{}
	// pending are the notices that Next returns before it waits. notice is the number of the last notice that was read.
	pending []engine.Notice
	notice  int64
	seen    seenCommits
	summary summaryWriter
}

// Connect implements engine.Ownership. It takes the owner lock if no other runtime has it. Otherwise the session stands
// by.
func (l leases) Connect(ctx context.Context, node engine.Node) (engine.Session, error) {
	conn, err := openReaders(l.writer.at, Options{Readers: 1})
	if err != nil {
		return nil, wrap(err, "open the session connection")
	}
	session := &nodeSession{db: l.database, node: node, conn: conn, woken: make(chan struct{}, 1)}
	session.summary.slot = make(chan struct{}, 1)
	if err := session.takeOver(ctx); err != nil {
		return nil, wrap(errors.Join(err, session.Close(ctx)), "set up the session")
	}
	l.sessions.add(session)
	return session, nil
}

// takeOver takes the owner lock, unless another runtime has it, and registers the node.
func (s *nodeSession) takeOver(ctx context.Context) (err error) {
	s.next = time.Now().Add(lockInterval)
	if s.lock == nil {
		s.lock, err = ownerlock.Acquire(s.db.path)
		if errors.Is(err, ownerlock.ErrOwned) {
			s.standBy(err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	// The session notices all later commits. The node may claim leases once it is registered.
	if err := s.seen.begin(ctx, s.conn); err != nil {
		return err
	}
	if err := s.register(ctx); err != nil {
		return fmt.Errorf("register the node: %w", err)
	}
	s.owns, s.owner = true, ""
	s.next = time.Now().Add(noticeInterval)
	s.db.log.Info("this runtime owns the file", zap.String("path", s.db.path), zap.String("node", s.node.ID),
		zap.String("name", s.node.Name))
	return nil
}

// standBy logs once which process owns the file. The first time it may be a process that inspects the lock.
func (s *nodeSession) standBy(err error) {
	switch owner := err.Error(); s.owner {
	case owner:
	case "":
		s.owner = "unknown"
	default:
		s.owner = owner
		s.db.log.Info("standing by until the owner of the file ends", zap.String("path", s.db.path),
			zap.Error(err))
	}
}

// register makes the node the owner of the file. The leases of all other nodes are dead from then on.
func (s *nodeSession) register(ctx context.Context) error {
	filters, err := json.Marshal(filterEntries(s.node.Filters))
	if err != nil {
		return err
	}
	return s.db.transact(ctx, func(tx *sql.Tx) (err error) {
		if err := execute(ctx, tx, "replace_owner", s.node.ID); err != nil {
			return err
		}
		if err := execute(ctx, tx, "register", s.node.ID, list(s.node.Projections), list(s.node.Tenants),
			string(filters), time.Now().UnixMicro(), s.node.Name); err != nil {
			return err
		}
		s.notice, err = number(ctx, tx, "last_notice")
		return err
	})
}

// filterEntries returns the entries of filters, as the column filters of nodes has them.
func filterEntries(filters map[string]engine.TenantFilter) map[string][]string {
	entries := make(map[string][]string, len(filters))
	for name, filter := range filters {
		entries[name] = filter.Entries()
	}
	return entries
}

// Next implements engine.Session. When the node takes over the file, Next returns a notice that leases have become
// free.
func (s *nodeSession) Next(ctx context.Context) (engine.Notice, error) {
	for len(s.pending) == 0 {
		timer := time.NewTimer(time.Until(s.next))
		var err error
		select {
		case <-ctx.Done():
		case <-s.woken:
			err = s.readNotices(ctx)
		case <-timer.C:
			err = s.poll(ctx)
		}
		timer.Stop()
		switch {
		case ctx.Err() != nil:
			return engine.Notice{}, ctx.Err()
		case err != nil:
			return engine.Notice{}, fmt.Errorf("wait for notices: %w", storeFault(err))
		}
	}
	notice := s.pending[0]
	s.pending = s.pending[1:]
	return notice, nil
}

// poll does the periodic work of Next.
func (s *nodeSession) poll(ctx context.Context) error {
	if !s.owns {
		err := s.takeOver(ctx)
		if s.owns {
			s.pending = append(s.pending, engine.Notice{Control: true})
		}
		return err
	}
	s.next = time.Now().Add(noticeInterval)
	if err := s.seen.poll(ctx, s.conn); err != nil {
		return err
	}
	if s.seen.notices {
		if err := s.readNotices(ctx); err != nil {
			return err
		}
	}
	tenants, err := s.seen.risen(ctx, s.conn)
	for _, tenant := range tenants {
		s.pending = append(s.pending, engine.Notice{Tenant: tenant, Position: engine.UnknownPosition})
	}
	return err
}

// readNotices reads the notices since the last time.
func (s *nodeSession) readNotices(ctx context.Context) error {
	if !s.owns {
		return nil
	}
	var owner string
	if _, err := runOne(ctx, s.conn, "owner", nil, &owner); err != nil {
		return err
	}
	if owner != s.node.ID {
		return fmt.Errorf("node %q owns the file now: its lock file was removed or renamed", owner)
	}
	notices, last, err := noticesAfter(ctx, s.conn, s.notice)
	if err != nil {
		return err
	}
	s.pending, s.notice, s.seen.notices = append(s.pending, notices...), last, false
	return nil
}

// Heartbeat implements engine.Session. The lock is the heartbeat. The summary is written in the background, since a
// batch may have the writer for long. A summary that cannot be written is left to a later heartbeat.
func (s *nodeSession) Heartbeat(ctx context.Context, summary *engine.NodeSummary) error {
	if !s.owns {
		return nil
	}
	if err := errors.Join(s.lock.Beat(), s.db.writer.at.check()); err != nil {
		return wrap(err, "send heartbeat")
	}
	encoded, err := summary.Encode()
	if err != nil {
		return wrap(err, "send heartbeat")
	}
	s.summary.write(s.db, s.node.ID, encoded)
	return nil
}

// ListPeers implements engine.Session. Other nodes take no share of the leases: either this node owns the file, or it
// has no leases.
func (s *nodeSession) ListPeers(context.Context) (engine.Fleet, error) { return engine.Fleet{}, nil }

// MarkDead implements engine.Session. The owner of a file is dead when its lock is free.
func (s *nodeSession) MarkDead(context.Context, engine.Peer) (bool, error) { return false, nil }

// Pooled implements engine.Session.
func (s *nodeSession) Pooled() bool { return false }

// Deregister implements engine.Session.
func (s *nodeSession) Deregister(ctx context.Context) error {
	if !s.owns {
		return nil
	}
	err := s.db.transact(ctx, func(tx *sql.Tx) error {
		if err := execute(ctx, tx, "end_leases", s.node.ID, time.Now().UnixMicro()); err != nil {
			return err
		}
		return execute(ctx, tx, "deregister", s.node.ID)
	})
	return wrap(err, "deregister")
}

// Close implements engine.Session. It releases the owner lock last.
func (s *nodeSession) Close(context.Context) error {
	s.db.sessions.remove(s)
	s.summary.stop()
	err := s.conn.Close()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Release())
		s.lock, s.owns = nil, false
	}
	return err
}
