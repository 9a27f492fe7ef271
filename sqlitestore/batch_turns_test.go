package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/millrace-go/millrace/event"
)

// An append that is made during a batch waits for that batch, and for no later one, although the next batch begins at once, as
// while a projection catches up. An append whose goroutine does not run meanwhile asks for its turn later.
func TestAppendWaitsForOneBatch(t *testing.T) {
	t.Parallel()
	const batches, late = 60, 10
	b := newBatcher(t, batches)
	var group sync.WaitGroup
	defer group.Wait()
	atOnce := 0
	for i := range batches {
		noError(t, b.run(testContext(t), b.pending(1), func(ctx context.Context, tx *sql.Tx, events []event.Envelope) error {
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
	// The group that had the connection, one that waited, and more if the goroutine of the batch did not run meanwhile.
	if groups > 50*batches {
		t.Errorf("%d groups went before %d batches", groups, batches)
	}
	stop()
	group.Wait()
}
