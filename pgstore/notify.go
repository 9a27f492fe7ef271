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

// notifyInterval is the shortest time between two notifications. The first is sent at once, and tenants that follow are
// sent together. Without it, the notifier took a fifth of the append speed.
const notifyInterval = 2 * time.Millisecond

// notifier wakes feeds in this process directly, and those in other processes by NOTIFY. It runs after the commit, so
// that no append waits for it.
type notifier struct {
	store *Store
	local eventlog.Wakes

	mu      sync.Mutex
	dirty   map[string]int64 // the position that each tenant has events up to
	running bool
	closed  bool
	idle    sync.WaitGroup
	stop    chan struct{}
}

func newNotifier(s *Store) *notifier {
	return &notifier{store: s, dirty: make(map[string]int64), stop: make(chan struct{})}
}

func (s port) OnWake(fn func(tenant string, position int64)) (remove func()) {
	return s.notify.local.On(fn)
}

// wake announces that the tenant has new events. It does not block.
func (n *notifier) wake(tenant string) { n.appended(tenant, engine.UnknownPosition) }

// appended is wake for events up to a known position.
func (n *notifier) appended(tenant string, position int64) {
	n.local.Wake(tenant, position)
	if n.store.opts.NoNotify {
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

// run sends notifications until there were none for one interval.
func (n *notifier) run() {
	defer n.idle.Done()
	for {
		n.mu.Lock()
		if len(n.dirty) == 0 {
			n.running = false
			n.mu.Unlock()
			return
		}
		payloads := make([]string, 0, len(n.dirty))
		for tenant, position := range n.dirty {
			payloads = append(payloads, announcement(tenant, position))
		}
		clear(n.dirty)
		n.mu.Unlock()

		next := time.Now().Add(notifyInterval)
		if err := n.send(payloads); err != nil {
			n.store.log.Debug("notification not sent", zap.Strings("payloads", payloads), zap.Error(err))
		}
		select {
		case <-time.After(time.Until(next)):
		case <-n.stop:
		}
	}
}

// announcement returns the payload of a notification: the tenant, and in a second line the position if that is known. The name of
// a tenant has no control characters.
func announcement(tenant string, position int64) string {
	if position == engine.UnknownPosition {
		return tenant
	}
	return tenant + "\n" + strconv.FormatInt(position, 10)
}

// announced returns what a payload announces: a tenant and a position, 0 if it is not known. Writers other than stores announce only
// the tenant.
func announced(payload string) (tenant string, position int64) {
	tenant, text, _ := strings.Cut(payload, "\n")
	number, _ := strconv.ParseUint(text, 10, 63)
	return tenant, int64(number)
}

func (n *notifier) send(payloads []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	args := []any{n.store.control.wakeChannel, payloads}
	if n.store.server.pooling.Forgets {
		args = slices.Insert(args, 0, any(pgx.QueryExecModeExec))
	}
	return n.store.repeatably(ctx, func(conn *pgx.Conn) error {
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
