package actors

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-go/millrace/internal/engine"
)

// probed is a store whose probes take a second. answer gets their number.
type probed struct {
	engine.Health
	begun, running, most atomic.Int64
	answer               func(n int64) error
}

func (p *probed) Probe(ctx context.Context) error {
	n := p.begun.Add(1)
	p.most.Store(max(p.most.Load(), p.running.Add(1)))
	defer p.running.Add(-1)
	select {
	case <-time.After(time.Second):
		return p.answer(n)
	case <-ctx.Done():
		return ctx.Err()
	}
}

type numbered int64

func (numbered) Error() string { return "number" }

func probing(store *probed, test func(d *Deps)) {
	d := &Deps{Store: Store{Health: store}, Timing: Timing{QueryTimeout: 10 * time.Second}}
	d.life, d.giveUp = context.WithCancelCause(context.Background())
	test(d)
	d.Wait()
}

// The server may become unreachable after a probe began, so its result is not for later calls.
func TestProbesAreSharedAndBeginAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &probed{answer: func(n int64) error { return numbered(n) }}
		probing(store, func(d *Deps) {
			answers := make(chan [2]int64, 1000)
			ask := func(least int64) {
				d.Own(func() {
					var n numbered
					if !errors.As(d.Probe(t.Context()), &n) {
						t.Error("no answer")
					}
					answers <- [2]int64{int64(n), least}
				})
			}
			ask(1)
			synctest.Wait()
			for range 500 { // while the first runs
				ask(2)
			}
			<-time.After(1500 * time.Millisecond)
			for range 400 { // while the second does
				ask(3)
			}
			d.Wait()
			for range 901 {
				if a := <-answers; a[0] != a[1] {
					t.Fatalf("answered by probe %d, want %d", a[0], a[1])
				}
			}
			if store.begun.Load() != 3 || store.most.Load() != 1 {
				t.Errorf("%d probes, up to %d at a time", store.begun.Load(), store.most.Load())
			}
		})
	})
}

func TestProbeEndsWithTheRuntimeAndItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &probed{answer: func(int64) error { return nil }}
		probing(store, func(d *Deps) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := d.Probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the caller gave up: %v", err)
			}
			if err := d.Probe(t.Context()); err != nil {
				t.Error(err)
			}
			d.Own(func() {
				if err := d.Probe(t.Context()); !errors.Is(err, context.Canceled) {
					t.Errorf("at the end: %v", err)
				}
			})
			synctest.Wait()
			d.GiveUp(context.Canceled)
		})
	})
}
