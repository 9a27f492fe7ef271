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

// probed is a store whose probes take a second and answer with how many there were.
type probed struct {
	engine.Store
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

func probing(store *probed, test func(e *Deps)) {
	e := &Deps{Store: store, Timing: Timing{QueryTimeout: 10 * time.Second}}
	e.life, e.giveUp = context.WithCancelCause(context.Background())
	test(e)
	e.Wait()
}

// The server may have gone away after a probe began, so that its answer says nothing to those who ask later.
func TestProbesAreSharedAndBeginAfterTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &probed{answer: func(n int64) error { return numbered(n) }}
		probing(store, func(e *Deps) {
			answers := make(chan [2]int64, 1000)
			ask := func(least int64) {
				e.Own(func() {
					var n numbered
					if !errors.As(e.Probe(t.Context()), &n) {
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
			e.Wait()
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

func TestProbeEndsWithTheRuntimeAndWithWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &probed{answer: func(int64) error { return nil }}
		probing(store, func(e *Deps) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := e.Probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who asks has no time: %v", err)
			}
			if err := e.Probe(t.Context()); err != nil {
				t.Error(err)
			}
			e.Own(func() {
				if err := e.Probe(t.Context()); !errors.Is(err, context.Canceled) {
					t.Errorf("at the end: %v", err)
				}
			})
			synctest.Wait()
			e.GiveUp(context.Canceled)
		})
	})
}
