package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
)

// An append that is made during a batch waits for that batch, and for no later one, although the next batch begins at
// once, as while a projection catches up. An append whose goroutine does not run meanwhile asks for its turn later.
func TestAppendWaitsForOneBatch(t *testing.T) {
	t.Parallel()
	const batches, late = 60, 10
	b := newBatcher(t, batches)
	var group sync.WaitGroup
	defer group.Wait()
	atOnce := 0
	for i := range batches {
		noError(t, b.run(testContext(t), b.pending(1),
			func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
				switch n := one[int](t, b.store, "select count(*) from millrace_events where stream_id = 'live'"); {
				case n == i:
					atOnce++
				case n < i-late:
					t.Errorf("%d of %d appends are made", n, i)
				}
				waiting := b.store.waitingAppends()
				group.Go(func() { mustAppend(t, b.store.tenant, "live", event.Any, someEvents(1)...) })
				until(t, "the append waits", func() bool { return b.store.waitingAppends() > waiting })
				return record(ctx, tx, events)
			}, limit))
	}
	if atOnce < batches/2 {
		t.Errorf("%d of %d appends waited for one batch only", atOnce, batches)
	}
}

// An append waits for at most one batch, even while several projections catch up.
func TestAppendWaitsForNoQueueOfBatches(t *testing.T) {
	t.Parallel()
	const projections, batches = 6, 10
	store := newStore(t)
	for range batches {
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	}
	rt := must(millrace.New(millrace.Config{Store: store}))(t)
	var group sync.WaitGroup
	defer group.Wait()
	var before []int // how many batches each append waited for
	began := make(map[int]int)
	calls := 0 // the file has one writer
	for i := range projections {
		noError(t,
			rt.Register(millrace.Projection{Name: fmt.Sprint("p", i), MaxEvents: 1,
				Handler: Each(func(_ context.Context, _ *sql.Tx, e event.Envelope) error {
					if e.Stream != "s" {
						return nil
					}
					calls++
					made := one[int](t, store, "select count(*) from millrace_events where stream_id = 'live'")
					for n := len(before); n < made; n++ {
						before = append(before, calls-began[n])
					}
					began[len(began)] = calls
					waiting := store.waitingAppends()
					group.Go(func() { mustAppend(t, store.tenant, "live", event.Any, someEvents(1)...) })
					until(t, "the append waits", func() bool { return store.waitingAppends() > waiting })
					return nil
				})}))
	}
	must(rt.RunUntilIdle(testContext(t)))(t)
	atOnce := 0
	for _, n := range before {
		if n == 1 {
			atOnce++
		}
	}
	// An append whose goroutine does not run meanwhile asks for its turn later.
	t.Logf("appends waited for %v batches", before)
	if len(before) < projections*batches/2 || atOnce < len(before)*2/3 {
		t.Errorf("of %d appends, %d waited for one batch only", len(before), atOnce)
	}
	// Each append waits for the writer once. If several batches ran at once, each of them would wait, too.
	if waits := store.port().ConnectionWaits().Count; waits > projections*batches*3/2 {
		t.Errorf("%d waits for the writer while %d appends waited", waits, projections*batches)
	}
}

// While appends never pause, a batch waits for few groups of them.
func TestBatchIsNotStarvedByAppends(t *testing.T) {
	t.Parallel()
	const batches = 20
	b := newBatcher(t, batches)
	ctx, stop := context.WithCancel(testContext(t))
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for {
				if _, err := b.store.Append(ctx, "live", event.Any, someEvents(1)...); err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	until(t, "appends are made", func() bool {
		return one[int](t, b.store, "select count(*) from millrace_events where stream_id = 'live'") > 10
	})
	commits := countCommits(t, b.store)
	groups := int64(0)
	for range batches {
		asked := commits.Load()
		noError(t, b.run(testContext(t), b.pending(1), func(context.Context, *sql.Tx, []event.Envelope) error {
			groups += commits.Load() - asked
			return nil
		}, limit))
	}
	// One group has the connection, and one waits. More groups follow if the batch's goroutine is not scheduled in
	// time.
	if groups > 50*batches {
		t.Errorf("%d groups went before %d batches", groups, batches)
	}
	stop()
	group.Wait()
}
