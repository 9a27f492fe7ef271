package actors

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/control"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/messages"
	"github.com/millrace-go/millrace/projection"
)

// pages counts the events that were read of a history, and those that are still in memory.
type pages struct {
	history
	mu   sync.Mutex
	read int
	made map[weak.Pointer[event.Envelope]]int
}

func (p *pages) Read(ctx context.Context, tenant string, r engine.ReadRange) (engine.Page, error) {
	page, err := p.history.Read(ctx, tenant, r)
	if len(page.Events) > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.read += len(page.Events)
		p.made[weak.Make(&page.Events[0])] = len(page.Events)
	}
	return page, err
}

// inMemory returns how many events are in memory.
func (p *pages) inMemory() (events int) {
	runtime.GC()
	p.mu.Lock()
	defer p.mu.Unlock()
	for page, n := range p.made {
		if page.Value() != nil {
			events += n
		}
	}
	return events
}

func TestProjectionsBehindShareTheRoomForEvents(t *testing.T) {
	const projections, head, batch = 30, 200, 10
	o := surround(t)
	store := &pages{made: make(map[weak.Pointer[event.Envelope]]int)}
	o.deps.Store = Store{Events: store, Plane: control.On(outage{})}
	o.deps.Limiter = NewLimiter(Limits{Connections: 4, Batches: 1, BatchesPerTenant: 1})
	room := 8 * batch * event.Envelope{}.Size() // two pages of four batches
	o.deps.shared.ahead.left = room
	applied, most := make(map[projection.ID]int64), 0
	o.def.Apply = func(_ context.Context, lease engine.Lease, b engine.Batch) error {
		// The actor is told of the heartbeat before it is told of the batch.
		o.deps.Registry.session.publish(func(e *SessionEntry) { e.HeartbeatSent = time.Now() })
		for i := range b.Events {
			if at := b.Events[i].Position; at != applied[lease.ID]+1 {
				t.Errorf("%s: event %d after %d", lease.ID, at, applied[lease.ID])
			}
			applied[lease.ID] = b.Events[i].Position
		}
		if len(applied) == projections && applied[lease.ID]%(5*batch) == 0 {
			most = max(most, store.inMemory())
		}
		if applied[lease.ID] == head {
			o.applied <- head
		}
		return nil
	}
	o.in(func(ctx actor.Context) {
		for i := range projections {
			lease := o.lease
			lease.Row, lease.ID.Name, lease.Incarnation = int32(i+1), fmt.Sprint("p", i), 1
			p := mustSpawn(t, o.deps, ctx, NewProjection(o.deps, o.def, lease, o.pid, true))
			ctx.Send(p, &messages.TailAdvanced{Mark: head, From: head, Incarnation: 1})
		}
	})
	for range projections {
		o.mustApply(head)
	}
	// The room, a batch, and the page that was just read in full, since the size of events was not known.
	if limit := 8*batch + batch + 4*batch; most == 0 || most > limit {
		t.Errorf("%d events of %d projections were in memory, want at most %d", most, projections, limit)
	}
	if store.read > 2*projections*head {
		t.Errorf("%d events were read to apply %d", store.read, projections*head)
	}
	o.eventually("all room is free", func() bool { return o.deps.roomLeft() == room })
}

func (d *Deps) roomLeft() int {
	d.shared.ahead.mu.Lock()
	defer d.shared.ahead.mu.Unlock()
	return d.shared.ahead.left
}

func TestRoomIsHeldForWhatIsInMemory(t *testing.T) {
	w := newAhead(t, &history{}, nil)
	page := &engine.Page{Events: envelopes(3)}
	held := func(want int, what string) {
		if got := w.fed.held.bytes; got != want || w.deps.roomLeft() != aheadBytes-want {
			t.Errorf("%s: %d bytes are held, and %d left, want %d", what, got, w.deps.roomLeft(), want)
		}
	}
	for what, step := range map[string]struct {
		buffer int
		next   *engine.Page
		ahead  *readAhead
		want   int
	}{
		"events of the buffer":       {1000, nil, nil, 1000},
		"a page that was read":       {0, page, nil, page.Size()},
		"a page that is being read":  {1000, nil, &readAhead{memory: 5000}, 5000},
		"no events":                  {0, nil, nil, 0},
		"more than half of the room": {aheadBytes, nil, nil, 0},
	} {
		if !w.hold(3000) {
			t.Fatal("there is no room")
		}
		w.fed.ahead.Store(step.ahead)
		if kept := w.keep(step.buffer, step.next); kept != (step.buffer <= aheadBytes/2) {
			t.Errorf("%s: kept: %v", what, kept)
		}
		held(step.want, what)
	}
}

func TestProjectionThatWaitsOrStopsFreesItsRoom(t *testing.T) {
	for name, stops := range map[string]bool{"it waits": false, "it stops": true} {
		t.Run(name, func(t *testing.T) {
			o := surround(t)
			o.deps.Store = Store{Events: &history{}, Plane: control.On(outage{})}
			o.deps.Limiter = NewLimiter(Limits{Connections: 4, Batches: 1, BatchesPerTenant: 1})
			applying, fail := make(chan struct{}), make(chan struct{})
			o.def.Apply = func(context.Context, engine.Lease, engine.Batch) error {
				close(applying)
				<-fail
				return errors.New("the server is away")
			}
			o.lease.Incarnation = 1
			p := o.projection()
			o.send(p, &messages.TailAdvanced{Mark: 1000, From: 1000, Incarnation: 1})
			<-applying
			if o.deps.roomLeft() == aheadBytes {
				t.Error("it reads ahead without room")
			}
			if stops {
				_ = o.deps.System.Root.StopFuture(p).Wait()
				close(fail)
				o.deps.Wait() // for the batch
			} else {
				close(fail)
			}
			o.eventually("its room is free", func() bool { return o.deps.roomLeft() == aheadBytes })
		})
	}
}
