package actors

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// Router knows the feed of each tenant and wakes only the one that is concerned. Wakes are coalesced before the mailbox:
// while one is on its way, others cost an atomic operation.
type Router struct {
	root  *actor.RootContext
	feeds sync.Map // tenant to *feedRef
}

type feedRef struct {
	pid   *actor.PID
	woken atomic.Bool
	// mark is how far the feed has settled, incarnation that of the server in which it did.
	mark        atomic.Int64
	incarnation atomic.Int64
}

func newRouter(root *actor.RootContext) *Router { return &Router{root: root} }

// Wake tells the tenant's feed, where this node has one, that there may be new events. It never blocks.
func (r *Router) Wake(tenant string) {
	if ref, ok := r.feeds.Load(tenant); ok {
		r.wake(ref.(*feedRef))
	}
}

func (r *Router) wake(ref *feedRef) {
	if ref.woken.CompareAndSwap(false, true) {
		r.root.Send(ref.pid, &messages.Wake{})
	}
}

// add routes wakes of the tenant to a feed that calls it when it has started.
func (r *Router) add(tenant string, pid *actor.PID) *feedRef {
	ref := &feedRef{pid: pid}
	r.feeds.Store(tenant, ref)
	return ref
}

// remove ends the routing, unless the tenant has another feed by now.
func (r *Router) remove(tenant string, ref *feedRef) { r.feeds.CompareAndDelete(tenant, ref) }

// marks returns the tenants that this node has feeds of, and how far those have settled.
func (r *Router) marks() map[string]int64 {
	marks := make(map[string]int64)
	r.feeds.Range(func(tenant, ref any) bool {
		marks[tenant.(string)] = ref.(*feedRef).mark.Load()
		return true
	})
	return marks
}

// wakeMissing wakes the feeds of tenants whose heads were asked for and not found, which find out why. That a tenant is locked is
// known already.
func (r *Router) wakeMissing(asked []string, heads engine.Heads) {
	for _, tenant := range asked {
		if _, found := heads.Positions[tenant]; !found && !errors.Is(heads.Failed[tenant], projection.ErrTenantLocked) {
			r.Wake(tenant)
		}
	}
}

// compare takes in the heads that were read after marks was: a feed that has not settled up to its tenant's head is
// woken. A feed of another incarnation of the server begins anew, and so does one whose mark is above the head: there events
// are gone.
func (r *Router) compare(heads engine.Heads, marks map[string]int64) {
	for tenant, head := range heads.Positions {
		found, ok := r.feeds.Load(tenant)
		if !ok {
			continue
		}
		ref := found.(*feedRef)
		known := engine.Incarnation(ref.incarnation.Load())
		switch {
		case known != 0 && known != heads.Incarnation:
			r.root.Send(ref.pid, &messages.Recheck{Incarnation: heads.Incarnation})
		case head < marks[tenant]:
			r.root.Send(ref.pid, &messages.Recheck{})
		case head > ref.mark.Load():
			r.wake(ref)
		}
	}
}
