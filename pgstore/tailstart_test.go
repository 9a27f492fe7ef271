package pgstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/backoff"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/pgtest"
)

// Thousands of tails that start at once must not send a statement each.
func TestTailsThatStartTogetherShareStatements(t *testing.T) {
	t.Parallel()
	const tenants = 120
	dsn := pgtest.Database(t)
	owner := migrated(t, openStore(t, dsn, Options{NoNotify: true}))
	var names []string
	for i := range tenants {
		names = append(names, fmt.Sprint("t", i))
	}
	noError(t, owner.CreateTenants(testContext(t), names...))
	for i := range 3 {
		mustAppend(t, must(owner.ForTenant(names[i]))(t), "s", event.Any, someEvents(i+1)...)
	}
	mustExec(t, owner, "drop schema millrace_t7 cascade")

	var acquired atomic.Int64
	store := openStore(t, dsn, Options{NoNotify: true}, func(config *pgxpool.Config) {
		config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
			acquired.Add(1)
			return true, nil
		}
	})
	// The first slice waits until all tails have joined.
	store.events.starts.mu.Lock()
	store.events.starts.running = true
	store.events.starts.mu.Unlock()
	var group errgroup.Group
	updates := make([]engine.TailUpdate, tenants)
	slots := atomic.Int64{}
	for i, name := range names {
		tail := store.port().TailPoller(name)
		tail.ReadWithin(func(ctx context.Context) (context.Context, func(), error) {
			slots.Add(1)
			return ctx, func() {}, nil
		})
		group.Go(func() (err error) {
			updates[i], err = tail.Poll(testContext(t))
			if i == 7 && err != nil {
				return nil
			}
			return err
		})
	}
	noError(t, backoff.Poll(testContext(t), time.Millisecond, time.Millisecond, func() (bool, error) {
		store.events.starts.mu.Lock()
		defer store.events.starts.mu.Unlock()
		return len(store.events.starts.waiting) == tenants, nil
	}))
	acquired.Store(0)
	store.events.starts.ended.Go(store.events.starts.run)
	noError(t, group.Wait())
	for i, u := range updates {
		want := int64(0)
		if i < 3 {
			want = int64(i + 1)
		}
		if i != 7 && (u.Mark != want || u.From != want || u.Incarnation == 0 || len(u.Events) != 0) {
			t.Errorf("%s starts with %+v, want the mark %d", names[i], u, want)
		}
	}
	// The slice is halved until the tenant that cannot be read is alone, and a scan of the locks settles the three
	// heads.
	if n := acquired.Load(); n > 30 || slots.Load() > 1 {
		t.Errorf("%d tails took a connection %d times, and %d slots", tenants, n, slots.Load())
	}
}

// A tail that starts alone sends no statement for several. It would not delay the next one, which would then start
// alone, too.
func TestTailsGatherWhileOneStartsAlone(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	var group errgroup.Group
	started, end := make(chan struct{}), make(chan struct{})
	group.Go(func() error {
		_, err := store.events.starts.of(testContext(t), "default", func() (tailStart, error) {
			close(started)
			<-end
			return tailStart{}, nil
		})
		return err
	})
	<-started
	alone := atomic.Int64{}
	for i := range 5 {
		name := newTenant(t, store, fmt.Sprint("t", i)).name
		group.Go(func() error {
			_, err := store.events.starts.of(testContext(t), name, func() (tailStart, error) {
				alone.Add(1)
				return tailStart{}, nil
			})
			return err
		})
	}
	noError(t, backoff.Poll(testContext(t), time.Millisecond, time.Millisecond, func() (bool, error) {
		store.events.starts.mu.Lock()
		defer store.events.starts.mu.Unlock()
		return len(store.events.starts.waiting) == 5 || alone.Load() > 0, nil
	}))
	close(end)
	noError(t, group.Wait())
	if alone.Load() != 0 {
		t.Errorf("%d of 5 tails that could start together started alone", alone.Load())
	}
}

func TestTailThatStartsTogetherWithOthersFindsItsFloor(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	other := newTenant(t, store, "other")
	mustAppend(t, other, "s", event.Any, someEvents(5)...)
	for _, name := range []string{"p", "q"} {
		mustExec(t, store,
			`with p as (insert into millrace.projections (tenant, name) values ('other', $1) returning id)
			insert into millrace.leases (id, checkpoint) select id, case $1 when 'p' then 2 else 4 end from p`, name)
	}
	found := make(map[string]tailStart)
	noError(t, store.events.starts.readSlice(testContext(t), []string{"default", "other"}, found))
	if d, o := found["default"], found["other"]; d.floor != 0 || d.head != 0 || o.floor != 4 || o.head != 5 ||
		o.in == 0 || o.in != d.in {
		t.Errorf("%+v", found)
	}
}
