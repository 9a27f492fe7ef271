package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/queued"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/session"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

// Queued batches that wait at the same time share a message. The first one sends it for the others, so no batch waits
// while the system is idle. Each keeps its own transaction. If one fails, those before it are committed, and those
// after it are sent again. The failed one has not happened: it is sent alone, with the time limits of its handler. What
// its error means is decided there, and only there.

const (
	// leastSenders and mostSenders are how many messages are on their way at once, one for each connectionsPerSender.
	// With more, each would have fewer transactions. With one, a statement that waits would hold up all.
	leastSenders, mostSenders, connectionsPerSender = 2, 4, 8
	// mostShared is how many transactions share a message, and mostStatements how many statements their handlers have
	// queued in all. Each may take sharedTime, and the message about finishTime.
	mostShared, mostStatements = 20, 40
	// sharedWait and sharedTime are how long a statement of a shared message may wait for a lock, and take, since
	// others wait for it.
	sharedWait, sharedTime = 100 * time.Millisecond, 200 * time.Millisecond
	// slowShared is how long a batch may take on the server without being sent alone the next time.
	slowShared = 50 * time.Millisecond
	// aloneAfterCommit is how many batches are sent alone after one whose commit was slow.
	aloneAfterCommit = 20
)

// sharing has the queued batches that wait for a message. senders of most messages are on their way, and more only if
// batches lead that have the slot of a connection: they wait for no others, since others may wait for that slot.
type sharing struct {
	*database
	most int

	mu      sync.Mutex
	senders int
	waiting []*sharer
	// alone are the leases whose last batch failed, was slow, or broke off, with the number of quick batches that are
	// sent alone first.
	alone map[int32]int
}

// sharer is a queued batch that shares a message. leads reports that it sends the next message, and flushes that its
// commit makes those before it durable. stop ends the wait of a leader for its connection.
type sharer struct {
	b          *batchTx
	lease      engine.Lease
	statements []queued.Statement
	leads      bool
	flushes    bool
	stop       context.CancelCauseFunc
	// turn gets leading once at most, and then how the batch ended.
	turn chan turn
}

// errNoAnswer is the error of a batch that may have committed.
var errNoAnswer = errors.New("the session broke before the answer to its message came")

// turn is what a batch waits for: to lead, or how it ended. err says why, if the end is unclear.
type turn struct {
	is  stage
	err error
}

type stage int

const (
	leading stage = iota
	// done batches are committed, and durable unless they are asynchronous.
	done
	// notDone batches have left nothing behind, and are sent alone.
	notDone
	// unclear batches may have committed.
	unclear
)

// goesAlone reports whether the next batch of a lease is sent alone.
func (s *sharing) goesAlone(row int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alone[row] > 0
}

// setAlone sets after a batch of a lease how many of its next ones are sent alone, at least. Before, it may have been
// more.
func (s *sharing) setAlone(row int32, next int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = max(next, s.alone[row]-1)
	switch {
	case next == 0:
		delete(s.alone, row)
	case s.alone == nil:
		s.alone = map[int32]int{row: next}
	default:
		s.alone[row] = next
	}
}

// enter begins to wait.
func (s *sharing) enter(t *sharer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, t)
	if s.senders < s.most || t.b.hasSlot {
		s.senders++
		t.lead()
	}
}

func (t *sharer) lead() {
	t.leads = true
	t.turn <- turn{is: leading}
}

// pass lets the batch lead that has waited longest.
func (s *sharing) pass() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.senders <= s.most {
		for _, t := range s.waiting {
			if !t.leads {
				t.lead()
				return
			}
		}
	}
	s.senders--
}

// untilTaken sets the function that is called when another message takes the leader's batch. It reports whether the
// batch still waits.
func (s *sharing) untilTaken(leader *sharer, stop context.CancelCauseFunc) (waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	leader.stop = stop
	return slices.Contains(s.waiting, leader)
}

// leave ends a wait. It reports whether the batch waited still, and whether it leads.
func (s *sharing) leave(t *sharer) (waited, leads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, t); i >= 0 {
		s.waiting, waited = slices.Delete(s.waiting, i, i+1), true
	}
	return waited, t.leads
}

// take returns the batches of the next message: that of the leader, if it waits still, and those that have waited
// longest. Those of a tenant are side by side: the server plans a statement again if the search path differs from that
// of its last use.
func (s *sharing) take(leader *sharer) (group []*sharer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, statements, left := aroundHandler-aroundNext, 0, s.waiting[:0]
	add := func(t *sharer) {
		size += aroundNext + sizeOf(t.statements)
		statements += len(t.statements)
		group = append(group, t)
		if t.stop != nil && t != leader {
			t.stop(engine.ErrNotNeeded)
		}
	}
	fits := func(t *sharer) bool {
		return len(group) < mostShared && statements+len(t.statements) <= mostStatements &&
			size+aroundNext+sizeOf(t.statements) <= mostInMessage
	}
	if slices.Contains(s.waiting, leader) {
		add(leader)
	}
	for _, t := range s.waiting {
		switch {
		case t == leader:
		case len(group) == 0, fits(t):
			add(t)
		default:
			left = append(left, t)
		}
	}
	clear(s.waiting[len(left):])
	s.waiting = left
	slices.SortStableFunc(group, func(a, b *sharer) int { return strings.Compare(a.b.id.Tenant, b.b.id.Tenant) })
	return group
}

// tenants returns those whose batches the leader sends if it gets its connection at once.
func (s *sharing) tenants(leader *sharer) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []string{leader.b.id.Tenant}
	for _, t := range s.waiting[:min(len(s.waiting), mostShared)] {
		if !slices.Contains(all, t.b.id.Tenant) {
			all = append(all, t.b.id.Tenant)
		}
	}
	return all
}

// share sends a batch in a message with others, or waits until another one has sent it. sent is false if it must be
// sent alone.
func (b *batchTx) share(ctx context.Context, lease engine.Lease, statements []queued.Statement) (sent bool, err error) {
	s := &b.store.sharing
	if b.opts.fresh || len(statements) > mostStatements || s.goesAlone(lease.Row) {
		return false, nil
	}
	t := &sharer{b: b, lease: lease, statements: statements, turn: make(chan turn, 2)}
	s.enter(t)
	end, err := s.await(ctx, t)
	switch {
	case err != nil:
		return true, fmt.Errorf("send %s of %s: %w", b.what, b.id, err)
	case end.is == notDone:
		return false, nil
	case end.is == unclear:
		err := &faults.Fault{Class: faults.Unclear, Err: errors.Join(errNoAnswer, end.err)}
		return true, fmt.Errorf("commit %s of %s up to %d: %w", b.what, b.id, b.to, err)
	}
	return true, nil
}

// await returns how a batch ended, and sends the next message if it is its turn to lead. The error says why the batch
// was not sent.
func (s *sharing) await(ctx context.Context, t *sharer) (end turn, err error) {
	defer s.leave(t) // also after a panic
	led := false
	select {
	case end = <-t.turn:
		if end.is != leading {
			return end, nil
		}
		led, err = true, s.lead(ctx, t)
		if err == nil {
			return <-t.turn, nil
		}
	case <-ctx.Done():
		err = faults.Cancelled(context.Cause(ctx))
	}
	waited, leads := s.leave(t)
	if leads && !led {
		s.pass()
		<-t.turn
	}
	if waited {
		return end, err
	}
	return <-t.turn, nil // another one has sent it
}

// lead sends the next message, and lets another batch lead. If another message takes the leader's batch while it waits
// for a connection, lead sends nothing.
func (s *sharing) lead(ctx context.Context, t *sharer) error {
	defer s.pass()
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if !s.untilTaken(t, stop) {
		return nil
	}
	release, err := t.b.connected(waiting, s.tenants(t))
	if err != nil {
		return err
	}
	defer release()
	if s.server.preparesUses {
		waiting = ctx // its end would break a session that a hook uses
	}
	conn, err := s.pool.Acquire(waiting)
	if err != nil {
		return storeFault(err)
	}
	defer conn.Release()
	s.sendShared(ctx, conn.Conn(), s.take(t))
	return nil
}

// sendShared sends batches in one message, or in more if some of them fail.
func (s *sharing) sendShared(ctx context.Context, conn *pgx.Conn, batches []*sharer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	m := sharedMessage{sharing: s, conn: conn, left: batches}
	if len(m.left) == 0 {
		return
	}
	var err error
	defer func() { m.end(err) }()
	err = m.sendAll(ctx)
	if err != nil {
		s.log.Warn("a message of batches failed, closing its connection", zap.Error(err))
	}
	if err != nil || m.spent {
		closeHard(ctx, conn)
	}
}

// sharedMessage sends batches. Only its last commit waits for the disk, and makes those before it durable.
type sharedMessage struct {
	sharing *sharing
	conn    *pgx.Conn
	// left are the batches that have not ended, and sent reports whether they were sent. unflushed are committed and
	// not yet durable.
	left, unflushed []*sharer
	sent            bool
	// spent reports that the session is closed afterwards.
	spent bool
}

// sendAll sends the batches, and makes those durable that have committed.
func (m *sharedMessage) sendAll(ctx context.Context) error {
	restore, err := session.Of(ctx, m.conn)
	if err != nil {
		return err
	}
	for len(m.left) > 0 && !m.spent {
		if err := m.send(ctx, restore); err != nil {
			return err
		}
	}
	if len(m.unflushed) == 0 {
		return nil
	}
	_, err = m.conn.Exec(ctx, sqltext.Fill(queries.Text("flush_batches"), "{flush}", flushAll), pgx.QueryExecModeExec)
	if err != nil {
		return err
	}
	m.flushed(turn{is: done})
	return nil
}

// commands returns the commands of a message with all batches that are left.
func (m *sharedMessage) commands(restore session.Restore) (list []command) {
	last, durable := -1, len(m.unflushed)
	for i, t := range m.left {
		if !t.b.opts.asyncCommit {
			last, durable = i, durable+1
		}
	}
	commands := len(restore.Statements) + 1
	for _, t := range m.left {
		commands += len(t.statements) + len(restore.Statements) + 6
	}
	list = make([]command, 0, commands)
	for i, t := range m.left {
		p := place{shared: true, follows: i > 0, precedes: i < len(m.left)-1}
		t.flushes = i == last || m.sharing.opts.SyncEachCommit
		switch {
		case durable == 1 || m.sharing.opts.SyncEachCommit: // as its session does
		case t.flushes:
			p.flush = flushAll
		default:
			p.flush = flushLater
		}
		list = t.b.appendTo(list, t.lease, restore, t.statements, p)
	}
	return list
}

// send sends the batches that are left in one message. It returns an error if the session cannot send more.
func (m *sharedMessage) send(ctx context.Context, restore session.Restore) error {
	list := m.commands(restore)
	m.sent = true
	at, err := sendAnew(ctx, m.conn.PgConn(), m.sharing.preparedOn(m.conn), list)
	m.committed(list[:at])
	if err == nil || len(m.left) == 0 || !pgerr.FromServer(err) || m.conn.IsClosed() {
		return err
	}
	refused := m.left[0]
	m.left, m.sent = m.left[1:], false
	m.sharing.setAlone(refused.lease.Row, 1)
	interrupted := classify(err).Class == faults.Interrupted && !pgerr.Is(err, pgerr.QueryCanceled)
	m.spent = interrupted || fromStandby(err) // a prepared statement or the server may be the cause
	refused.b.rollback(ctx, m.conn, restore)
	refused.turn <- turn{is: notDone}
	if m.conn.IsClosed() {
		return err
	}
	return nil
}

// committed records the commits among the commands that were answered.
func (m *sharedMessage) committed(answered []command) {
	alone := aloneNext(answered)
	n := 0
	for _, c := range answered {
		if c.part != endPart {
			continue
		}
		t := m.left[n]
		m.sharing.setAlone(t.lease.Row, alone[n])
		n++
		if t.b.opts.asyncCommit {
			t.turn <- turn{is: done}
			continue
		}
		m.unflushed = append(m.unflushed, t)
		if t.flushes {
			m.flushed(turn{is: done})
		}
	}
	m.left = m.left[n:]
}

// flushed records how the batches end that were not flushed before.
func (m *sharedMessage) flushed(end turn) {
	for _, t := range m.unflushed {
		t.turn <- end
	}
	m.unflushed = nil
}

// end ends the batches that have not ended, because of an error. If the session broke while they were under way, one of
// them may be the cause.
func (m *sharedMessage) end(err error) {
	m.flushed(turn{unclear, err})
	for _, t := range m.left {
		if !m.sent {
			t.turn <- turn{is: notDone}
			continue
		}
		m.sharing.setAlone(t.lease.Row, 1)
		t.turn <- turn{unclear, err}
	}
}
