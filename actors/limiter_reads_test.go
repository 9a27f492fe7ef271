package actors

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/projection"
)

// slotTails is a store whose tails do nothing but wait for the slot of their reads.
type slotTails struct{ engine.Events }

type slotTail struct {
	engine.TailPoller
	slot engine.ReadSlot
}

func (slotTails) TailPoller(string) engine.TailPoller { return new(slotTail) }

func (*slotTail) Take(*engine.Page) (engine.TailUpdate, bool) { return engine.TailUpdate{}, false }

func (t *slotTail) ReadWithin(slot engine.ReadSlot) {
	t.slot = slot
}

// reads are reads that hold their slots until the test ends them.
type reads struct {
	t       *testing.T
	granted chan string
	end     map[string]chan struct{}
}

// begin begins a read that waits for its slot in within.
func (r *reads) begin(name string, within func(ctx context.Context, read func(ctx context.Context) error) error) {
	end := make(chan struct{})
	r.end[name] = end
	go func() {
		if err := within(r.t.Context(), func(context.Context) error {
			r.granted <- name
			<-end
			return nil
		}); err != nil {
			r.t.Error(err)
		}
	}()
	synctest.Wait()
}

// within runs a read in a slot.
func within(slot acquireFunc) func(ctx context.Context, read func(ctx context.Context) error) error {
	return func(ctx context.Context, read func(ctx context.Context) error) error {
		release, err := slot(ctx)
		if err != nil {
			return err
		}
		defer release()
		return read(ctx)
	}
}

// next ends a read, and returns the read that gets its slot.
func (r *reads) next(ends string) string {
	close(r.end[ends])
	return <-r.granted
}

func TestReadsOfAFloodDelayNoTailAndNoStatementOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deps := &Deps{
			Store: Store{Events: slotTails{}}, Registry: newRegistry(), Feeds: newRouter(nil),
			Timing:  Timing{QueryTimeout: time.Minute},
			Limiter: serving(Limits{Connections: 8}, "flood1", "flood2", "quiet"),
		}
		r := &reads{t: t, granted: make(chan string, 500), end: make(map[string]chan struct{})}
		for i := range 200 { // two of them get the slots
			w := &worker{fed: &intake{},
				deps: deps, def: &engine.Definition{Weight: 1},
				id: projection.ID{Tenant: fmt.Sprint("flood", 1+i%2), Name: fmt.Sprint("p", i)},
			}
			r.begin(w.id.String(), within(w.readSlot))
		}
		first, second := <-r.granted, <-r.granted
		for _, tenant := range []string{"flood1", "quiet"} {
			slot := (&feed{deps: deps, tenant: tenant}).newPoller().(*slotTail).slot
			r.begin(tenant, within(func(ctx context.Context) (func(), error) {
				_, release, err := slot(ctx)
				return release, err
			}))
		}
		r.begin("node", deps.Limiter.Read)
		for _, step := range []struct{ ends, want string }{{first, "node"}, {second, "quiet"}, {"node", "flood1"}} {
			if got := r.next(step.ends); got != step.want {
				t.Errorf("after the read of %s that of %s follows, want %s", step.ends, got, step.want)
			}
		}
		for name, end := range r.end {
			if name != first && name != second && name != "node" {
				close(end)
			}
		}
		synctest.Wait() // all others get their slots
	})
}
