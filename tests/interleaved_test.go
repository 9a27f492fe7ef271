package tests_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/tests/kit"
)

// interleaver appends in random ways from several stores of one place, and rolls a part of it back.
type interleaver struct {
	*kit.Bundle
	stores    []kit.Store
	committed atomic.Int64
}

// appendOne appends some events in one transaction, or takes them back. It returns how many are committed.
func (i *interleaver) appendOne(random *rand.Rand) (committed int, err error) {
	store, stream := i.stores[random.IntN(len(i.stores))], fmt.Sprint("s", random.IntN(5))
	events := kit.SomeEvents(1 + random.IntN(3))
	rollback := random.IntN(4) == 0
	switch random.IntN(3) {
	case 0:
		_, err = store.Append(i.Ctx, stream, event.Any, events...)
		return len(events), err
	case 1:
		err = store.InTx(i.Ctx, func(ctx context.Context, tx kit.Tx) error {
			_, err := store.AppendTx(ctx, tx, stream, event.Any, events...)
			if err == nil && rollback {
				err = kit.ErrOnPurpose
			}
			return err
		})
		if rollback && errors.Is(err, kit.ErrOnPurpose) {
			return 0, nil
		}
		return len(events), err
	}
	tx, err := store.Begin(i.Ctx)
	if err != nil {
		return 0, err
	}
	_, err = store.AppendTx(i.Ctx, tx, stream, event.Any, events...)
	if err != nil || rollback {
		return 0, errors.Join(err, tx.Rollback(i.Ctx))
	}
	defer store.Wake()
	return len(events), tx.Commit(i.Ctx)
}

// Each committed event reaches the projections, in order, however appends interleave and roll back. One projection runs
// from the start, another one starts in between, and a third reads everything afterwards.
func TestInterleavedAppendsAreAppliedOnceAndInOrder(t *testing.T) {
	kit.Run(t, func(t *testing.T, b *kit.Bundle) {
		seed := kit.Seed(t)
		i := &interleaver{Bundle: b, stores: []kit.Store{b.Store, b.Again(), b.Again()}}
		live := b.Another(millrace.Config{}, b.Recorders("live")...)
		stop := b.Start(live)
		var writers sync.WaitGroup
		for w := range uint64(8) {
			random := rand.New(rand.NewPCG(seed, w))
			writers.Go(func() {
				for range 60 {
					n, err := i.appendOne(random)
					i.committed.Add(int64(n))
					if err != nil {
						t.Errorf("append: %v", err)
						return
					}
				}
			})
		}
		b.Eventually("a third of the appends is there", func() bool { return i.committed.Load() > 200 })
		stop()
		rt := b.Runtime(millrace.Config{}, b.Recorders("live", "later")...)
		stop = b.Start(rt)
		writers.Wait()
		head := b.Head()
		b.Applied(rt, head, "live", "later")
		if n := int64(len(b.All(b.Store))); n != i.committed.Load() {
			t.Errorf("%d events, %d were committed", n, i.committed.Load())
		}
		stop()
		b.Idle(b.Recorders("afterwards")...)
		b.Verify("afterwards")
	})
}
