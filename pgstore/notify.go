package pgstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/eventlog"
)

// Without a limit, the notifier took a fifth of the append speed. Tenants that follow during a rest are sent together.
const (
	// notifyShare limits notifications to a tenth of the time. While they are cheap, 500 in a second stay far below
	// that, and each is sent at once.
	notifyShare = 10
	// notifySaved is the most time without notifications that counts later. With it, events that follow each other
	// closely after a quiet time are announced at once.
	notifySaved = 10 * time.Millisecond
	// notifyRest is the longest rest after a notification, however long it took. So the delay of a wake-up stays small.
	notifyRest = 2 * time.Millisecond
)

// restAfter returns the rest after a notification that took cost. before is the rest after the one before it, which
// ended the time passed earlier. A result that is not positive is time saved: the next notification may be sent at
// once.
func restAfter(before, passed, cost time.Duration) time.Duration {
	return min(max(before-passed, -notifySaved)+notifyShare*cost, notifyRest)
}

// notifier wakes feeds in this process directly, and those in other processes by NOTIFY. It runs after the commit, so
// that no append waits for it.
type notifier struct {
	db    *database
	local eventlog.Wakes
	send  func(payloads []string) error

	mu      sync.Mutex
	dirty   map[string]int64 // the position that each tenant has events up to
	running bool
	closed  bool
	idle    sync.WaitGroup
	stop    chan struct{}

	// rest is the result of restAfter for the last notification, which ended at the time ended. Only run uses them.
	rest  time.Duration
	ended time.Time
}

func newNotifier(db *database) *notifier {
	n := &notifier{db: db, dirty: make(map[string]int64), stop: make(chan struct{})}
	n.send = n.sendNotification
	return n
}

func (s port) OnWake(w engine.Waker) (remove func()) { return s.store.notify.local.On(w) }

// wake announces that the tenant has new events. It does not block.
func (n *notifier) wake(tenant string) { n.appended(tenant, engine.UnknownPosition, nil) }

// appended is wake for events up to a known position. own has the events, if this process may use them.
func (n *notifier) appended(tenant string, position int64, own *engine.Page) {
	n.local.Wake(tenant, position, own)
	if n.db.opts.NoNotify {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.dirty[tenant] = max(n.dirty[tenant], position)
	if !n.running {
		n.running = true
		n.idle.Add(1)
		go n.run()
	}
}

// run sends notifications, and rests after each, until there are none.
func (n *notifier) run() {
	defer n.idle.Done()
	for {
		payloads := n.take()
		if len(payloads) == 0 {
			return
		}
		begun := time.Now()
		if err := n.send(payloads); err != nil {
			n.db.log.Debug("notification not sent", zap.Strings("payloads", payloads), zap.Error(err))
		}
		now := time.Now()
		n.rest, n.ended = restAfter(n.rest, now.Sub(n.ended), now.Sub(begun)), now
		if n.rest > 0 {
			select {
			case <-time.After(n.rest):
			case <-n.stop:
			}
		}
	}
}

// take returns the notifications that are due. If there are none, the notifier no longer runs.
func (n *notifier) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running = len(n.dirty) > 0
	payloads := make([]string, 0, len(n.dirty))
	for tenant, position := range n.dirty {
		payloads = append(payloads, announcement(tenant, position))
	}
	clear(n.dirty)
	return payloads
}

// announcement returns the payload of a notification: the tenant, and in a second line the position if that is known.
// The name of a tenant has no control characters.
func announcement(tenant string, position int64) string {
	if position == engine.UnknownPosition {
		return tenant
	}
	return tenant + "\n" + strconv.FormatInt(position, 10)
}

// announced returns the tenant and the position that a payload announces. Writers other than stores announce only the
// tenant.
func announced(payload string) (tenant string, position int64) {
	tenant, text, _ := strings.Cut(payload, "\n")
	number, err := strconv.ParseUint(text, 10, 63)
	if err != nil || number == 0 {
		return tenant, engine.UnknownPosition
	}
	return tenant, int64(number)
}

// sendNotification sends payloads in one statement.
func (n *notifier) sendNotification(payloads []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	args := []any{n.db.control.wakeChannel, payloads}
	if n.db.server.pooling.Forgets {
		args = slices.Insert(args, 0, any(pgx.QueryExecModeExec))
	}
	return n.db.repeatably(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, queries.Text("notify_wake"), args...)
		return err
	})
}

// close waits until the last notification is sent.
func (n *notifier) close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.stop)
	}
	n.mu.Unlock()
	n.idle.Wait()
}
