package pgstore

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

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
	dirty   map[string]struct{}
	running bool
	closed  bool
	idle    sync.WaitGroup
	stop    chan struct{}
}

func newNotifier(s *Store) *notifier {
	return &notifier{store: s, dirty: make(map[string]struct{}), stop: make(chan struct{})}
}

func (s port) OnWake(fn func(tenant string)) (remove func()) {
	return s.notify.local.On(fn)
}

// wake announces that the tenant has new events. It does not block.
func (n *notifier) wake(tenant string) {
	n.local.Wake(tenant)
	if n.store.opts.NoNotify {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.dirty[tenant] = struct{}{}
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
		tenants := make([]string, 0, len(n.dirty))
		for t := range n.dirty {
			tenants = append(tenants, t)
		}
		clear(n.dirty)
		n.mu.Unlock()

		if err := n.send(tenants); err != nil {
			n.store.log.Debug("notification not sent", zap.Strings("tenants", tenants), zap.Error(err))
		}
		select {
		case <-time.After(notifyInterval):
		case <-n.stop:
		}
	}
}

func (n *notifier) send(tenants []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := n.store.pool.Exec(ctx, queries.Text("notify_wake"), pgx.QueryExecModeExec, n.store.control.wakeChannel, tenants)
	return err
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
