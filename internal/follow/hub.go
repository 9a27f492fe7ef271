// Package follow lets programs follow the events of tenants without a projection. All followers of a tenant in one
// process share one read of its end: that of the runtime's feed if the process has one, and otherwise their own.
//
//	hub.go       has the sources, and wakes them
//	source.go    settles the end of a tenant's events while it has followers
//	follower.go  is the iterator of one follower
package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/tenancy"
)

const (
	// lookEvery is how often the heads of followed tenants are compared with what was read, to find events that were
	// not announced. deafEvery is that while nothing is heard of other processes.
	lookEvery = 5 * time.Second
	deafEvery = 500 * time.Millisecond
	// linger is for how long a hub listens after its last follower has left: a client that is cut off comes again.
	linger = 5 * time.Second
	// readTimeout limits a statement of a source.
	readTimeout = 30 * time.Second
)

// ErrClosed is returned if the store was closed.
var ErrClosed = errors.New("the store is closed")

// Store is what a hub needs of a store.
type Store interface {
	TailPoller(tenant string) engine.TailPoller
	Heads(ctx context.Context, tenants []string) (engine.Heads, error)
	Tenants(ctx context.Context, names []string) ([]engine.Tenant, error)
	Absent(ctx context.Context, tenant string) error
	OnWake(w engine.Waker) (remove func())
	Classify(err error) *faults.Fault
	Connections() int
	NotWithin(ctx context.Context) error
	// Listen calls the functions of an ear for what other processes announce, until ctx ends or its connection is lost.
	Listen(ctx context.Context, ear Ear) error
}

// Ear is what a hub does with what it hears.
type Ear struct {
	// Begins is called when announcements begin to arrive, and not at all if they cannot.
	Begins func()
	// Wake is called for new events, and Tenants if tenants came or went.
	Wake    func(tenant string, position int64)
	Tenants func()
}

// Hub has the followers of a store. It runs nothing while there are none, after a while.
type Hub struct {
	store Store
	log   *zap.Logger
	// slots limits the reads that run at once.
	slots chan struct{}
	reads singleflight.Group
	// life ends with Close.
	life  context.Context
	end   context.CancelCauseFunc
	count atomic.Int32 // of sources
	// erasures counts the calls of Drop.
	erasures atomic.Int64

	mu      sync.Mutex
	sources map[string]*source
	// quit ends what runs for all sources, nil while nothing runs. idle calls it after the last follower has left.
	quit    context.CancelFunc
	idle    *time.Timer
	running sync.WaitGroup
}

// New returns the hub of a store.
func New(store Store, log *zap.Logger) *Hub {
	h := &Hub{
		store: store, log: log, slots: make(chan struct{}, max(1, store.Connections()/2)),
		sources: make(map[string]*source),
	}
	h.life, h.end = context.WithCancelCause(context.Background())
	return h
}

// Close ends all followers with ErrClosed, and waits for what runs. It may be called again.
func (h *Hub) Close() {
	h.mu.Lock()
	h.end(ErrClosed)
	for _, s := range h.sources {
		s.cancel()
	}
	h.rest()
	h.mu.Unlock()
	h.running.Wait()
}

// join returns the source of a tenant, for one more follower.
func (h *Hub) join(tenant string) (*source, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Err() != nil {
		return nil, ErrClosed
	}
	s := h.sources[tenant]
	if s == nil {
		h.begin()
		ctx, cancel := context.WithCancel(context.Background())
		s = newSource(h, tenant, cancel)
		h.sources[tenant] = s
		h.count.Add(1)
		h.running.Go(func() { s.run(ctx) })
	}
	s.followers++
	return s, nil
}

// leave ends a source without followers.
func (h *Hub) leave(s *source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.followers--
	if s.followers == 0 {
		s.cancel()
		h.remove(s)
	}
}

// forget is called by a source that has failed. The next follower begins with another one.
func (h *Hub) forget(s *source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(s)
}

func (h *Hub) remove(s *source) {
	if h.sources[s.tenant] == s {
		delete(h.sources, s.tenant)
		h.count.Add(-1)
		if len(h.sources) == 0 && h.quit != nil && h.idle == nil {
			h.idle = time.AfterFunc(linger, h.quitIdle)
		}
	}
}

// quitIdle ends what runs, unless followers have come again.
func (h *Hub) quitIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.idle != nil && len(h.sources) == 0 {
		h.rest()
	}
}

// begin begins what runs for all sources.
func (h *Hub) begin() {
	if h.idle != nil {
		h.idle.Stop()
		h.idle = nil
	}
	if h.quit != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	remove := h.store.OnWake(engine.Waker{
		Wake: func(tenant string, position int64, _ *engine.Page) { h.wake(tenant, position) },
	})
	h.quit = func() { cancel(); remove() }
	hears := new(atomic.Bool)
	h.running.Go(func() { h.listen(ctx, hears) })
	h.running.Go(func() { h.look(ctx, hears) })
}

func (h *Hub) rest() {
	if h.idle != nil {
		h.idle.Stop()
		h.idle = nil
	}
	if h.quit != nil {
		h.quit()
		h.quit = nil
	}
}

// find returns the source of a tenant, nil if it has no followers.
func (h *Hub) find(tenant string) *source {
	if h.count.Load() == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sources[tenant]
}

func (h *Hub) wake(tenant string, position int64) {
	if s := h.find(tenant); s != nil {
		s.wake(position)
	}
}

// Followed implements engine.Followers.
func (h *Hub) Followed(tenant string) bool { return h.find(tenant) != nil }

// Advanced implements engine.Followers.
func (h *Hub) Advanced(tenant string, t *engine.Tail) {
	s := h.find(tenant)
	if s != nil && s.feed.Swap(t) != t {
		s.wake(engine.UnknownPosition)
	}
}

// Drop drops the events that followers of a tenant have in memory, since some of them are erased. Followers read them
// again.
func (h *Hub) Drop(tenant string) {
	h.erasures.Add(1)
	if s := h.find(tenant); s != nil {
		s.epoch.Add(1)
		s.wake(engine.UnknownPosition)
	}
}

// Erasures counts the erasures by the store.
func (h *Hub) Erasures() *atomic.Int64 { return &h.erasures }

// Gone implements engine.Followers.
func (h *Hub) Gone(tenant string) { h.endWith(tenant, tenancy.ErrRestored) }

// End ends the followers of a tenant that was dropped. A tenant that is created under its name is another one.
func (h *Hub) End(tenant string) { h.endWith(tenant, tenancy.ErrUnknown) }

func (h *Hub) endWith(tenant string, err error) {
	if s := h.find(tenant); s != nil {
		s.endWith(err)
	}
}

// listen listens for announcements of other processes until ctx ends. hears is true while they arrive.
func (h *Hub) listen(ctx context.Context, hears *atomic.Bool) {
	delays := backoff.New(100*time.Millisecond, 5*time.Second)
	for ctx.Err() == nil {
		err := h.store.Listen(ctx, Ear{Wake: h.wake, Tenants: func() { h.compareTenants(ctx) }, Begins: func() {
			delays.Reset()
			hears.Store(true)
			h.compareTenants(ctx) // what was announced before was not heard
			for _, s := range h.all() {
				s.wake(engine.UnknownPosition)
			}
		}})
		hears.Store(false)
		if ctx.Err() == nil {
			h.log.Debug("followers hear nothing of other processes, and poll", zap.Error(err))
		}
		_ = delays.Wait(ctx)
	}
}

func (h *Hub) all() []*source {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*source, 0, len(h.sources))
	for _, s := range h.sources {
		all = append(all, s)
	}
	return all
}

// look compares the tenants from time to time with what their sources know.
func (h *Hub) look(ctx context.Context, hears *atomic.Bool) {
	ticker := time.NewTicker(deafEvery)
	defer ticker.Stop()
	for looked := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if hears.Load() && time.Since(looked) < lookEvery {
			continue
		}
		h.compareTenants(ctx)
		h.compareHeads(ctx)
		looked = time.Now()
	}
}

// compareTenants ends the sources whose tenants were dropped, also if they were created again.
func (h *Hub) compareTenants(ctx context.Context) {
	sources := make(map[string]*source)
	for _, s := range h.all() {
		if s.state.Load().known {
			sources[s.tenant] = s
		}
	}
	if len(sources) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found, err := h.store.Tenants(ctx, slices.Collect(maps.Keys(sources)))
	if err != nil {
		return
	}
	for _, t := range found {
		if t.Row == sources[t.Name].row.Load() {
			delete(sources, t.Name)
		}
	}
	for _, s := range sources {
		s.endWith(tenancy.ErrUnknown)
	}
}

// compareHeads wakes the sources that are behind the heads of their tenants.
func (h *Hub) compareHeads(ctx context.Context) {
	marks := make(map[string]engine.Tail)
	for _, s := range h.all() {
		if st := s.state.Load(); st.known && s.feed.Load() == nil {
			marks[s.tenant] = st.tail
		}
	}
	if len(marks) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	heads, err := h.store.Heads(ctx, slices.Collect(maps.Keys(marks)))
	for tenant, mark := range marks {
		head, found := heads.Positions[tenant]
		// A source that was woken for nothing finds out why a tenant or the server cannot be read.
		if err != nil || !found || head != mark.Mark || heads.Incarnation != mark.Incarnation {
			h.wake(tenant, engine.UnknownPosition)
		}
	}
}

// row returns the key of a tenant.
func (h *Hub) row(ctx context.Context, tenant string) (int32, error) {
	ctx, release, err := h.readSlot(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	found, err := h.store.Tenants(ctx, []string{tenant})
	if err == nil && len(found) == 0 {
		err = tenancy.ErrUnknown
	}
	if err != nil {
		return 0, err
	}
	return found[0].Row, nil
}

// readSlot is the ReadSlot of the tails. It waits for a slot, and limits the read.
func (h *Hub) readSlot(ctx context.Context) (limited context.Context, release func(), err error) {
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	case <-h.life.Done():
		return nil, nil, ErrClosed
	}
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	return limited, func() { cancel(); <-h.slots }, nil
}

// end is the end of a tenant's events.
type end struct {
	head int64 // the highest visible position
	// in is the incarnation in which head was read.
	in engine.Incarnation
}

// endOf reads the end of a tenant's events.
func (h *Hub) endOf(ctx context.Context, tenant string) (end, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	heads, err := h.store.Heads(ctx, []string{tenant})
	if err != nil {
		return end{}, err
	}
	head, found := heads.Positions[tenant]
	switch {
	case heads.Failed[tenant] != nil:
		return end{}, heads.Failed[tenant]
	case !found:
		return end{}, cmp.Or(h.store.Absent(ctx, tenant), fmt.Errorf("the end of tenant %q cannot be read", tenant))
	}
	return end{head, heads.Incarnation}, nil
}

// shared returns what read returns. Callers with the same key at the same time share one read, which ends with the hub,
// and not with the caller that began it.
func shared[T any](ctx context.Context, h *Hub, key string,
	read func(ctx context.Context) (T, error)) (result T, err error) {
	found := h.reads.DoChan(key, func() (any, error) { return read(h.life) })
	select {
	case r := <-found:
		result, _ = r.Val.(T)
		return result, r.Err
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
}

// pause returns after some time, or when next is closed.
func pause(ctx context.Context, d time.Duration, next <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	case <-next:
	}
	return nil
}

// Settled returns the settled mark of a tenant: no event at or below it can still appear. It waits for appends in
// progress.
func (h *Hub) Settled(ctx context.Context, tenant string) (int64, error) {
	if err := h.store.NotWithin(ctx); err != nil {
		return 0, fmt.Errorf("settle the events of tenant %q: %w", tenant, err)
	}
	poller := h.store.TailPoller(tenant)
	for {
		u, err := poller.Poll(ctx)
		if err != nil || !u.More && u.Again == 0 {
			return u.Mark, err
		}
		err = pause(ctx, u.Again, nil)
		if err != nil {
			return 0, err
		}
	}
}

// lasts reports whether an error lasts until a person repairs something. Others end by themselves.
func (h *Hub) lasts(err error) bool {
	return !h.store.Classify(err).OfStore().Passes()
}

// noWait is a pause that only a wake ends.
const noWait = time.Duration(math.MaxInt64)
