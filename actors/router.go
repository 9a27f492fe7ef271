package actors

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/tenancy"
)

// Router has the feed of each tenant, and wakes only the feeds that are concerned. Wakes are coalesced before the
// mailbox: while one is under way, others cost an atomic operation.
type Router struct {
	root  *actor.RootContext
	feeds sync.Map // tenant to *feedRef
}

type feedRef struct {
	pid   *actor.PID
	woken atomic.Bool
	// wanted is the highest position that wakes have announced since the feed received the last one.
	wanted atomic.Int64
	// wokenAt is when the wake that is under way was sent, in nanoseconds since 1970.
	wokenAt atomic.Int64
	// noticed is when the last notification arrived, in nanoseconds since 1970.
	noticed atomic.Int64
	// polls reports whether the feed reads, or waits for open transactions. Then events beyond its mark are no news.
	polls atomic.Bool
	// followed reports whether the feed has subscribers.
	followed atomic.Bool
	// mark is the feed's settled mark. It was settled in that incarnation of the server, 0 if it is not known. base was
	// the mark at baseAt, in nanoseconds since 1970: at most knownFor ago while the feed reads.
	mark         atomic.Int64
	base, baseAt atomic.Int64
	incarnation  atomic.Int64
	// newest is what the feed has last sent to its projections, nil if the mark is not known.
	newest atomic.Pointer[messages.TailAdvanced]
}

func newRouter(root *actor.RootContext) *Router { return &Router{root: root} }

// Wake makes the tenant's feed, if this node has one, poll for events, since a notification of events up to a position
// arrived. An append in this process is announced directly and by its NOTIFY, and only the first needs a read. Wake
// never blocks.
func (r *Router) Wake(tenant string, position int64) { r.Appended(tenant, position, nil) }

// Appended is Wake for an append in this process. own has its events, nil if they have to be read.
func (r *Router) Appended(tenant string, position int64, own *engine.Page) {
	if ref := r.find(tenant); ref != nil {
		now := time.Now()
		ref.noticed.Store(now.UnixNano())
		if !ref.has(position, now) {
			r.wakeWith(ref, position, own)
		}
	}
}

// Rests reports whether the tenant's feed, if this node has one, would take the events of the next append: it has
// settled all that it knows of, and projections wait for more. It may be wrong a moment later, so the feed decides.
func (r *Router) Rests(tenant string) bool {
	ref := r.find(tenant)
	return ref != nil && ref.followed.Load() && ref.incarnation.Load() != 0 && !ref.polls.Load()
}

// knownFor is for how long a feed need not read for a position that it has just settled. A notification of an older
// position is a reason to read: the tenant may have been restored to an earlier state.
const knownFor = time.Second

// has reports whether the feed has settled a position recently.
func (ref *feedRef) has(position int64, now time.Time) bool {
	return ref.base.Load() < position && position <= ref.mark.Load() &&
		now.UnixNano()-ref.baseAt.Load() < int64(knownFor)
}

// settled records the mark of a read that has just ended.
func (ref *feedRef) settled(mark int64, now time.Time) {
	if before := ref.mark.Load(); mark < before || now.UnixNano()-ref.baseAt.Load() >= int64(knownFor) {
		ref.base.Store(min(mark, before))
		ref.baseAt.Store(now.UnixNano())
	}
	ref.mark.Store(mark)
}

// wake wakes a feed for events up to a position.
func (r *Router) wake(ref *feedRef, position int64) { r.wakeWith(ref, position, nil) }

// wakeWith is wake with the events of an append. They are dropped while another wake is under way, so that a feed that
// is slow keeps those of one append: it then reads for the position.
func (r *Router) wakeWith(ref *feedRef, position int64, own *engine.Page) {
	for before := ref.wanted.Load(); position > before && !ref.wanted.CompareAndSwap(before, position); {
		before = ref.wanted.Load()
	}
	if ref.woken.CompareAndSwap(false, true) {
		ref.wokenAt.Store(time.Now().UnixNano())
		r.root.Send(ref.pid, &messages.Wake{Own: own})
	}
}

// find returns the tenant's feed, nil if this node has none.
func (r *Router) find(tenant string) *feedRef {
	if ref, ok := r.feeds.Load(tenant); ok {
		return ref.(*feedRef)
	}
	return nil
}

// newest returns what the tenant's feed has last sent to its projections, nil if there is none or the mark is not
// known.
func (r *Router) newest(tenant string) *messages.TailAdvanced {
	if ref := r.find(tenant); ref != nil {
		return ref.newest.Load()
	}
	return nil
}

// add is called by a feed that has started.
func (r *Router) add(tenant string, pid *actor.PID) *feedRef {
	ref := &feedRef{pid: pid}
	r.feeds.Store(tenant, ref)
	return ref
}

// remove is called by a feed that stops. It reports false if the tenant has another one already.
func (r *Router) remove(tenant string, ref *feedRef) bool {
	return r.feeds.CompareAndDelete(tenant, ref)
}

// Noticed returns when the last notification of a tenant's events arrived. exists is false if this node has no feed of
// the tenant.
func (r *Router) Noticed(tenant string) (at time.Time, exists bool) {
	ref := r.find(tenant)
	if ref == nil {
		return time.Time{}, false
	}
	return time.Unix(0, ref.noticed.Load()), true
}

// Tenants returns the tenants that have a feed on this node.
func (r *Router) Tenants() (tenants []string) {
	r.feeds.Range(func(tenant, _ any) bool {
		tenants = append(tenants, tenant.(string))
		return true
	})
	return tenants
}

// marks returns the settled marks of these tenants' feeds.
func (r *Router) marks(tenants []string) []int64 {
	marks := make([]int64, len(tenants))
	for i, tenant := range tenants {
		if ref := r.find(tenant); ref != nil {
			marks[i] = ref.mark.Load()
		}
	}
	return marks
}

// compare wakes the feeds that have not settled up to the heads of their tenants. marks was read before the heads, so a
// mark above its head shows that events are gone: that feed begins anew, and so does a feed of another incarnation of
// the server. It returns the tenants with events that no feed knew of.
func (r *Router) compare(tenants []string, marks []int64, heads engine.Heads) (news []string) {
	for i, tenant := range tenants {
		ref := r.find(tenant)
		if ref == nil {
			continue
		}
		head, found := heads.Positions[tenant]
		known := engine.Incarnation(ref.incarnation.Load())
		switch {
		case !found && errors.Is(heads.Failed[tenant], tenancy.ErrLocked):
		case !found:
			r.wake(ref, engine.UnknownPosition) // the feed's own read shows why
		case known != 0 && known != heads.Incarnation:
			r.root.Send(ref.pid, &messages.Recheck{Incarnation: heads.Incarnation})
		case head < marks[i]:
			r.root.Send(ref.pid, &messages.Recheck{Gone: true})
		case head > ref.mark.Load():
			if known != 0 && !ref.polls.Load() {
				news = append(news, tenant)
			}
			r.wake(ref, head)
		}
	}
	return news
}
