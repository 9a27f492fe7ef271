package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/tests/kit"
)

// followed returns the positions that a follower of the default tenant gets, and the channel of its error.
func followed(ctx context.Context, store event.Reader, after int64) (positions func() []int64, ended <-chan error) {
	var mu sync.Mutex
	var got []int64
	end := make(chan error, 1)
	go func() {
		for e, err := range store.Follow(ctx, event.ReadOptions{After: after}) {
			if err != nil {
				end <- err
				return
			}
			mu.Lock()
			got = append(got, e.Position)
			mu.Unlock()
		}
	}()
	return func() []int64 {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}, end
}

// An append that is open holds its events back, and those above them. After a rollback, its positions stay free.
func TestFollowersWaitForOpenAppends(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	got, _ := followed(b.Ctx, b.store, 0)
	arrive := func(want ...int64) {
		t.Helper()
		b.Eventually(fmt.Sprint("the follower has ", want), func() bool { return len(got()) >= len(want) })
		if !slices.Equal(got(), want) {
			t.Errorf("the follower has %v, want %v", got(), want)
		}
	}
	begin := func(n int) pgx.Tx {
		t.Helper()
		tx, err := b.store.Pool().Begin(b.Ctx)
		b.Must(err)
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.Ctx)) })
		_, err = b.store.AppendTx(b.Ctx, tx, "open", event.Any, kit.SomeEvents(n)...)
		b.Must(err)
		return tx
	}
	b.Append("s", 1)
	arrive(1)
	open := begin(2)
	b.Append("s", 2)
	limited, cancel := context.WithTimeout(b.Ctx, 300*time.Millisecond)
	if mark, err := b.store.Settled(limited); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("settled up to %d beside an open append: %v", mark, err)
	}
	cancel()
	late, _ := followed(b.Ctx, b.elsewhere(pgstore.Options{}), 0) // its tail begins beside the open append
	b.Eventually("a follower of another process has what is settled",
		func() bool { return slices.Equal(late(), []int64{1}) })
	arrive(1)
	b.Must(open.Commit(b.Ctx))
	arrive(1, 2, 3, 4, 5)
	open = begin(3)
	b.Append("s", 1)
	arrive(1, 2, 3, 4, 5)
	b.Must(open.Rollback(b.Ctx))
	arrive(1, 2, 3, 4, 5, 9)
	b.Eventually("a follower that began beside the open append has the same",
		func() bool { return slices.Equal(late(), got()) })
	if mark, err := b.store.Settled(b.Ctx); err != nil || mark != 9 {
		t.Errorf("%d, %v", mark, err)
	}
}

// The server crashes, and loses commits whose events a follower has returned. That follower ends. A new one gets what
// the server still has.
func TestFollowersEndAfterACrash(t *testing.T) {
	t.Parallel()
	b, server := private(t, pgtest.Options{Settings: pgtest.AsyncCommits(map[string]string{"full_page_writes": "off"})})
	got, ended := followed(b.Ctx, b.store, 0)
	kept := b.Append("kept", 10).Last()
	b.exec("checkpoint")
	b.Must(server.HoldWAL(b.Ctx))
	last := b.Append("lost", 5).Last()
	b.Eventually("the follower has all events", func() bool { return len(got()) == int(last) })
	b.Must(server.CrashBackend(b.Ctx))
	b.Eventually("the server takes appends again", func() bool {
		_, err := b.store.Append(b.Ctx, "new", event.Any, kit.SomeEvents(20)...)
		return err == nil
	})
	b.InTime("the follower ends", func() {
		if err := <-ended; !errors.Is(err, event.ErrIncarnationChanged) {
			t.Error(err)
		}
	})
	if n := len(got()); n != int(last) {
		t.Errorf("after the crash it returned %v", got())
	}
	again, _ := followed(b.Ctx, b.store, kept)
	want := kit.PositionsOf(b.All(b.Store))[kept:]
	b.Eventually("another follower has what is there", func() bool { return slices.Equal(again(), want) })
}

// A follower waits while the server is away, and goes on after an orderly restart, which loses nothing.
func TestFollowersWaitForTheServer(t *testing.T) {
	t.Parallel()
	b, server := private(t, pgtest.Options{})
	got, ended := followed(b.Ctx, b.store, 0)
	b.Append("s", 3)
	b.Eventually("the follower has the events", func() bool { return len(got()) == 3 })
	b.Must(server.Restart(b.Ctx, "fast"))
	b.Eventually("the server takes appends again", func() bool {
		_, err := b.store.Append(b.Ctx, "s", event.Any, kit.SomeEvents(1)...)
		return err == nil
	})
	b.Eventually("the follower has the new event", func() bool {
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
		return slices.Equal(got(), kit.PositionsOf(b.All(b.Store)))
	})
}

// The connection that listens is ended, and appends of a store without notifications are found by polling.
func TestFollowersNeedNoNotification(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	silent, err := pgstore.Open(b.Ctx, b.Place, pgstore.Options{NoNotify: true})
	b.Must(err)
	t.Cleanup(silent.Close)
	got, _ := followed(b.Ctx, b.store, 0)
	for i := range 3 {
		_, err = silent.Append(b.Ctx, "s", event.Any, kit.SomeEvents(1)...)
		b.Must(err)
		b.Eventually("the follower has the event", func() bool { return len(got()) == i+1 })
		b.exec("select pg_terminate_backend(pid) from pg_stat_activity where query like '%listen %' and pid <> pg_backend_pid() and datname = current_database()")
	}
}

// statements counts the connections that a store takes for its statements while its followers get some events that are
// there, and some that another process appends. A runtime may run a projection on the store.
func (b *bundle) statements(followers, behind int, runs bool) int64 {
	var acquired, events atomic.Int64
	config, err := pgxpool.ParseConfig(b.Place)
	b.Must(err)
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
		acquired.Add(1)
		return true, nil
	}
	pool, err := pgxpool.NewWithConfig(b.Ctx, config)
	b.Must(err)
	defer pool.Close()
	store, err := pgstore.OpenPool(b.Ctx, pool, pgstore.Options{})
	b.Must(err)
	defer store.Close()
	on := *b.Bundle
	on.Store = kit.PgStore{Store: store}
	var rt *millrace.Runtime
	if runs {
		rt = on.Runtime(millrace.Config{}, on.Recorders("p")...)
		defer on.Start(rt)()
		on.AllLive(rt, 1)
	}
	after := b.Head() - int64(behind)
	ctx, cancel := context.WithCancel(b.Ctx)
	var group sync.WaitGroup
	for range followers {
		group.Go(func() {
			for _, err := range store.Follow(ctx, event.ReadOptions{After: after}) {
				if err != nil {
					return
				}
				events.Add(1)
			}
		})
	}
	defer group.Wait()
	defer cancel()
	const rounds = 30
	for i := range rounds {
		position := b.Append("s", 1).Last()
		b.Eventually("all followers have the event",
			func() bool { return events.Load() == int64((behind+i+1)*followers) })
		if runs {
			on.Reaches(rt, "p", position)
		}
	}
	return acquired.Load()
}

// A thousand followers of a tenant cost the database what one costs.
func TestFollowersShareTheirReads(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	const behind = 1200
	b.Append("s", behind)
	one, thousand := b.statements(1, behind, false), b.statements(1000, behind, false)
	t.Logf("statements: %d for one follower, %d for 1,000", one, thousand)
	if thousand > 2*one+10 {
		t.Errorf("%d statements for one follower, %d for 1,000", one, thousand)
	}
	if rows := value[int](b, "select count(*) from millrace.nodes"); rows != 0 {
		t.Errorf("followers left %d nodes", rows)
	}
}

// Beside a runtime that reads the tenant, followers read nothing.
func TestFollowersTakeWhatTheFeedReads(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	none, followed := b.statements(0, 0, true), b.statements(100, 0, true)
	t.Logf("statements: %d without followers, %d with 100", none, followed)
	if followed > none+100 { // reads of their own would be 3,000; heartbeats and polls depend on the time that it takes
		t.Errorf("%d statements without followers, %d with 100", none, followed)
	}
}

// Close ends the read of a follower that waits for a lock.
func TestCloseEndsReadsOfFollowers(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	b.Append("s", 5000) // more than a follower reads at once
	store, err := pgstore.Open(b.Ctx, b.dsn, pgstore.Options{})
	b.Must(err)
	first, rest := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		for e, err := range store.Follow(b.Ctx, event.ReadOptions{}) {
			switch {
			case err != nil:
				ended <- err
			case e.Position == 1:
				close(first)
				<-rest
			}
		}
	}()
	b.InTime("the follower reads", func() { <-first })
	release := b.lock("lock table millrace_default.events in access exclusive mode")
	defer release()
	close(rest)
	b.Eventually("the follower waits for the lock", func() bool {
		return value[int](b,
			"select count(*) from pg_locks where not granted and relation = 'millrace_default.events'::regclass") > 0
	})
	b.InTime("Close returns", store.Close)
	b.InTime("the follower ends", func() {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "the store is closed") {
			t.Error(err)
		}
	})
}

// A statement that returns more than a page takes is cut short, and its connection is closed. A follower of large
// events must not do that for each page.
func TestFollowersOfLargeEventsKeepTheirConnections(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	const events = 100
	body := fmt.Appendf(nil, "%q", strings.Repeat("x", 256<<10))
	for range events {
		_, err := b.store.Append(b.Ctx, "s", event.Any, event.Event{Type: "large", Body: body})
		b.Must(err)
	}
	var opened atomic.Int64
	store := b.open(b.Place, func(config *pgxpool.Config) {
		config.AfterConnect = func(context.Context, *pgx.Conn) error {
			opened.Add(1)
			return nil
		}
		config.MaxConns = 4
	}, pgstore.Options{})
	n := int64(0)
	for e, err := range store.Follow(b.Ctx, event.ReadOptions{}) {
		b.Must(err)
		n++
		if e.Position != n {
			t.Fatalf("event %d at %d", n, e.Position)
		}
		if n == events {
			break
		}
	}
	if opened.Load() > 8 {
		t.Errorf("%d connections were opened for %d events", opened.Load(), events)
	}
}

// Followers that are behind by the same events read them once.
func TestFollowersThatAreBehindShareTheirReads(t *testing.T) {
	t.Parallel()
	b := setup(t, pgstore.Options{})
	const followers, events = 100, 5000
	b.Append("s", events)
	var acquired atomic.Int64
	store := b.open(b.Place, func(config *pgxpool.Config) {
		config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
			acquired.Add(1)
			return true, nil
		}
	}, pgstore.Options{})
	var group sync.WaitGroup
	for range followers {
		group.Go(func() {
			n := int64(0)
			for e, err := range store.Follow(b.Ctx, event.ReadOptions{}) {
				n++
				if err != nil || e.Position != n {
					t.Errorf("event %d at %d: %v", n, e.Position, err)
					return
				}
				if n == events {
					return
				}
			}
		})
	}
	group.Wait()
	// Alone, each of them takes ten pages with two statements each.
	if n := acquired.Load(); n > followers*20/2 {
		t.Errorf("%d statements for %d followers", n, followers)
	}
}
