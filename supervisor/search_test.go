package supervisor

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// A fleet may have many leases that no node runs. Reading them all takes the server long, and finds nothing.
func TestSlowSearchThatFindsNothingIsRareUntilANotification(t *testing.T) {
	w := start(t, 1, []string{"a", "b"}, nil)
	var all, dead atomic.Int64
	const slow = 100 * time.Millisecond // the next periodic one follows after 20 s
	hook := func(call string) {
		switch call {
		case "search":
			<-time.After(slow)
			all.Add(1)
		case "search among dead owners":
			dead.Add(1)
		}
	}
	w.hook.Store(&hook)
	w.eventually("leases of dead owners are searched for all the time", func() bool { return dead.Load() >= 10 })
	if n := all.Load(); n > 2 { // one may have been in progress
		t.Errorf("%d searches among all leases during %d of the others, want at most 2", n, dead.Load())
	}
	id := projection.ID{Tenant: "b", Name: "p000", Partition: 1}
	w.mu.Lock()
	w.late = &engine.Lease{Row: 100, ID: id, Owner: w.node.ID, Epoch: 1}
	w.mu.Unlock()
	before, began := all.Load(), time.Now()
	w.deps.System.Root.Send(w.sup.pid, &messages.Notified{Notice: engine.Notice{Row: 100}})
	w.eventually("a notification leads to a search", func() bool { return all.Load() > before })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the search came %v after the notification", took)
	}
}

// A search that began before the node noticed the loss has counted what was lost, and left the share to others.
func TestSearchFollowsTheLossOfLeases(t *testing.T) {
	w := startSearching(t, time.Hour, 2, []string{"a"}, nil)
	var searches atomic.Int64
	hook := func(call string) {
		if call == "search" {
			searches.Add(1)
		}
	}
	w.hook.Store(&hook)
	w.mu.Lock()
	w.taken[1] = true
	w.mu.Unlock()
	w.deps.System.Root.Send(w.sup.pid, &messages.Notified{Notice: engine.Notice{Tenant: "a", Control: true}})
	w.eventually("the node searches because of the notification, and because of the loss",
		func() bool { return searches.Load() >= 2 })
}
