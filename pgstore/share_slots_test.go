package pgstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
)

// A message needs one slot of a connection, and a batch that is sent alone has its own. Others need none.
func TestQueuedBatchesWaitForSlotsOfTheirConnections(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 4)
	var mu sync.Mutex
	asked, held := "", 0
	r.connect = func(_ context.Context, tenants []string) (release func(), err error) {
		mu.Lock()
		defer mu.Unlock()
		held++
		if len(tenants) > 0 {
			asked += "message of " + strings.Join(tenants, " ")
		} else {
			asked += "alone "
		}
		return func() { mu.Lock(); defer mu.Unlock(); held-- }, nil
	}
	r.store.sharing.setAlone(r.leases[2].Row, 1) // the other one is too large
	for i, note := range map[int]string{2: "''", 3: "'" + strings.Repeat("x", mostInMessage) + "'"} {
		noError(t, r.batch(testContext(t), i, engine.ApplyOptions{}, rides(i, note)))
		if asked != "alone " || held != 0 {
			t.Errorf("rider %d asked for %q, and %d slots are held", i, asked, held)
		}
		asked = ""
	}
	all := r.leases
	r.leases = all[:2]
	noError(t, errors.Join(r.together(engine.ApplyOptions{}, func(i int) queueFunc { return rides(i, "''") })...))
	if asked != "message of default" || held != 0 {
		t.Errorf("two batches of a message asked for %q, and %d slots are held", asked, held)
	}
	r.leases = all
	r.rode(0, 1, 2, 3)
}

// A batch that gets no slot for its message leaves, and says why.
func TestQueuedBatchWhoseMessageGetsNoSlot(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t), 1)
	none := errors.New("no slot")
	r.connect = func(context.Context, []string) (func(), error) { return nil, none }
	if err := r.batch(testContext(t), 0, engine.ApplyOptions{}, rides(0, "''")); !errors.Is(err, none) {
		t.Errorf("got %v", err)
	}
	r.connect = nil
	noError(t, r.batch(testContext(t), 0, engine.ApplyOptions{}, rides(0, "''")))
	r.rode(0)
}

// All slots of connections may be held by batches that share messages. These must not wait for those that wait for a
// slot.
func TestQueuedBatchWithASlotWaitsForNoOther(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	most := store.sharing.most
	r := newRiders(t, store, most+2)
	free := make(chan struct{})
	r.slotted = most + 1
	r.connect = func(ctx context.Context, _ []string) (release func(), err error) {
		select {
		case <-free:
			return func() {}, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	errs := make([]error, most+1)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { errs[i] = r.batch(testContext(t), i, engine.ApplyOptions{}, rides(i, "''")) })
		r.waits(i + 1)
	}
	connect := r.connect
	r.connect = nil // as it has its slot
	noError(t, r.batch(testContext(t), r.slotted, engine.ApplyOptions{}, rides(r.slotted, "''")))
	r.connect = connect
	close(free)
	group.Wait()
	noError(t, errors.Join(errs...))
	r.until(func(s *sharing) bool { return s.senders == 0 })
	all := make([]int, most+2)
	for i := range all {
		all[i] = i
	}
	r.rode(all...)
}

// A batch that asks for a connection that none has used before does not share one.
func TestQueuedBatchThatNeedsAFreshConnectionIsSentAlone(t *testing.T) {
	t.Parallel()
	r := newRiders(t, newStore(t, connections(1)), 3)
	note := "pg_backend_pid()::text"
	noError(t, r.batch(testContext(t), 0, engine.ApplyOptions{}, rides(0, note)))
	run := r.store.Engine().Apply(Queued(rides(2, note)).Engine(), engine.ApplyOptions{Timeout: 10 * time.Second})
	first, fresh := make(chan error, 1), make(chan error, 1)
	r.holding(func() {
		go func() { first <- r.batch(testContext(t), 1, engine.ApplyOptions{}, rides(1, note)) }()
		r.waits(1)
		go func() {
			fresh <- run(testContext(t), r.leases[2],
				engine.Batch{Events: []event.Envelope{r.event}, To: r.event.Position, Fresh: true})
		}()
		r.until(func(s *sharing) bool { return len(s.waiting) == 2 || len(fresh) == 1 })
	})
	noError(t, errors.Join(<-first, <-fresh))
	if one[bool](t, r.store,
		"select (select note from public.rode where rider = 0) = (select note from public.rode where rider = 2)") {
		t.Error("it used the connection of another batch")
	}
}
