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

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/queued"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/session"
)

// Queued batches that wait at the same time share a message. The first one sends it for the others, so a batch does not wait while the
// system is idle. Each keeps its own transaction. If one fails, those before it are committed, and those after it are sent again. The failed one
// has not happened: it is sent alone, with the time limits of its handler. What its error means is decided there, and only there.

const (
	// leastSenders and mostSenders are how many messages are on their way at once, one for each connectionsPerSender. With more, each
	// would have fewer transactions. With one, a statement that waits would hold up all.
	leastSenders, mostSenders, connectionsPerSender = 2, 4, 8
	// mostShared is how many transactions share a message.
	mostShared = 20
	// sharedWait and sharedTime are how long a statement of a shared message may wait for a lock, and take, since others wait for it.
	sharedWait, sharedTime = 100 * time.Millisecond, 200 * time.Millisecond
)

// sharing has the queued batches that wait for a message. senders of most messages are on their way.
type sharing struct {
	most int

	mu      sync.Mutex
	senders int
	waiting []*sharer
	// alone are the leases whose last batch failed or was slow in a message. They are sent alone until one is quick.
	alone map[int32]struct{}
}

// sharer is a queued batch that shares a message. leads reports that it sends the next message, and flushes that its commit makes those
// before it durable.
type sharer struct {
	b          *batchTx
	lease      engine.Lease
	statements []queued.Statement
	leads      bool
	flushes    bool
	turn       chan turn
}

// errNoAnswer is the error of a batch that may have committed.
var errNoAnswer = errors.New("the session broke before the answer to its message came")

// turn is what a batch waits for: to lead, or how it ended.
type turn int

const (
	leading turn = iota
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
	_, alone := s.alone[row]
	return alone
}

// setAlone sets whether the next batch of a lease is sent alone.
func (s *sharing) setAlone(row int32, alone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !alone {
		delete(s.alone, row)
		return
	}
	if s.alone == nil {
		s.alone = make(map[int32]struct{})
	}
	s.alone[row] = struct{}{}
}

// enter begins to wait.
func (s *sharing) enter(t *sharer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, t)
	if s.senders < s.most {
		s.senders++
		t.lead()
	}
}

func (t *sharer) lead() {
	t.leads = true
	t.turn <- leading
}

// pass lets the batch lead that has waited longest.
func (s *sharing) pass() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.waiting {
		if !t.leads {
			t.lead()
			return
		}
	}
	s.senders--
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

// take returns the batches of the next message, those of a tenant side by side: the server plans a statement again if the search
// path differs from that of its last use.
func (s *sharing) take() []*sharer {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < min(len(s.waiting), mostShared) {
		if size += sizeOf(s.waiting[n].statements); size > mostInMessage && n > 0 {
			break
		}
		n++
	}
	group := slices.Clone(s.waiting[:n])
	s.waiting = slices.Delete(s.waiting, 0, n)
	slices.SortStableFunc(group, func(a, b *sharer) int { return strings.Compare(a.b.id.Tenant, b.b.id.Tenant) })
	return group
}

// share sends a batch in a message with others, or waits until another one has sent it. sent is false if it must be sent alone.
func (b *batchTx) share(ctx context.Context, lease engine.Lease, statements []queued.Statement) (sent bool, err error) {
	s := &b.store.sharing
	if s.goesAlone(lease.Row) {
		return false, nil
	}
	t := &sharer{b: b, lease: lease, statements: statements, turn: make(chan turn, 2)}
	s.enter(t)
	end, err := b.store.await(ctx, t)
	switch {
	case err != nil:
		return true, fmt.Errorf("send %s of %s: %w", b.what, b.id, err)
	case end == notDone:
		return false, nil
	case end == unclear:
		err := &engine.Fault{Class: engine.Unclear, Err: errNoAnswer}
		return true, fmt.Errorf("commit %s of %s up to %d: %w", b.what, b.id, b.to, err)
	}
	return true, nil
}

// await returns how a batch ended, and sends the next message if it is its turn to lead. The error says why the batch was not sent.
func (s *Store) await(ctx context.Context, t *sharer) (turn, error) {
	select {
	case end := <-t.turn:
		if end != leading {
			return end, nil
		}
		conn, err := t.b.acquire(ctx)
		if err == nil {
			s.sendShared(ctx, conn.Conn())
			conn.Release()
		}
		s.sharing.pass()
		if err == nil {
			return <-t.turn, nil
		}
		if waited, _ := s.sharing.leave(t); waited {
			return notDone, storeFault(err)
		}
	case <-ctx.Done():
		waited, leads := s.sharing.leave(t)
		if leads {
			s.sharing.pass()
			<-t.turn
		}
		if waited {
			return notDone, engine.CancelledFault(context.Cause(ctx))
		}
	}
	return <-t.turn, nil // another one sends it
}

// sendShared sends the batches that wait, in one message, or more if some of them fail.
func (s *Store) sendShared(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	m := sharedMessage{store: s, conn: conn, left: s.sharing.take()}
	defer m.end()
	if len(m.left) == 0 {
		return
	}
	restore, err := session.Of(ctx, conn)
	for err == nil && len(m.left) > 0 && !m.spent {
		err = m.send(ctx, restore)
	}
	if err == nil && len(m.unflushed) > 0 {
		_, err = conn.Exec(ctx, queries.Text("flush_batches"), pgx.QueryExecModeExec)
		m.flushed(err == nil)
	}
	if err != nil || m.spent {
		closeHard(ctx, conn)
	}
}

// sharedMessage sends batches. Only its last commit waits for the disk, and makes those before it durable.
type sharedMessage struct {
	store *Store
	conn  *pgx.Conn
	// left are the batches that have not ended, and sent reports whether they were sent. unflushed are committed and not yet durable.
	left, unflushed []*sharer
	sent            bool
	// spent reports that the session is closed afterwards.
	spent bool
}

// commands returns the commands of a message with all batches that are left.
func (m *sharedMessage) commands(restore session.Restore) (list []command) {
	last, durable := -1, len(m.unflushed)
	for i, t := range m.left {
		if !t.b.opts.asyncCommit {
			last, durable = i, durable+1
		}
	}
	for i, t := range m.left {
		p := place{shared: true, follows: i > 0, precedes: i < len(m.left)-1}
		t.flushes = i == last || m.store.opts.SyncEachCommit
		switch {
		case t.b.opts.asyncCommit:
			p.flush = flushNever
		case durable == 1 || m.store.opts.SyncEachCommit: // as its session does
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
	at, err := sendAnew(ctx, m.conn.PgConn(), m.store.preparedOn(m.conn), list)
	n := 0
	for _, c := range list[:at] {
		if c.part == endPart {
			n++
		}
	}
	m.committed(n)
	if err == nil || len(m.left) == 0 || !pgerr.FromServer(err) || m.conn.IsClosed() {
		return err
	}
	refused := m.left[0]
	m.left, m.sent = m.left[1:], false
	m.store.sharing.setAlone(refused.lease.Row, true)
	refused.turn <- notDone
	m.spent = classify(err).Class == engine.Interrupted && !pgerr.Is(err, pgerr.QueryCanceled) // a prepared statement may be the cause
	refused.b.rollback(ctx, m.conn, restore)
	closeStandby(ctx, m.conn, err)
	if m.conn.IsClosed() {
		return err
	}
	return nil
}

// committed records that the first n of the batches that are left have committed.
func (m *sharedMessage) committed(n int) {
	for _, t := range m.left[:n] {
		if t.b.opts.asyncCommit {
			t.turn <- done
			continue
		}
		m.unflushed = append(m.unflushed, t)
		if t.flushes {
			m.flushed(true)
		}
	}
	m.left = m.left[n:]
}

// flushed records that the committed batches are durable, or that it is not known whether they are.
func (m *sharedMessage) flushed(durable bool) {
	end := done
	if !durable {
		end = unclear
	}
	for _, t := range m.unflushed {
		t.turn <- end
	}
	m.unflushed = nil
}

// end ends the batches that have not ended. If the session broke while they were under way, one of them may be the cause.
func (m *sharedMessage) end() {
	m.flushed(false)
	for _, t := range m.left {
		if !m.sent {
			t.turn <- notDone
			continue
		}
		m.store.sharing.setAlone(t.lease.Row, true)
		t.turn <- unclear
	}
}
