package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"modernc.org/sqlite"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/eventlog"
	"github.com/millrace-go/millrace/tenancy"
)

// countCommits counts the commits of the connection that writes.
func countCommits(t *testing.T, store *Store) *atomic.Int64 {
	t.Helper()
	commits := new(atomic.Int64)
	session := must(store.writer.db.Conn(testContext(t)))(t)
	defer func() { noError(t, session.Close()) }()
	noError(t, session.Raw(func(driverConn any) error {
		c := driverConn.(*conn)
		c.RegisterCommitHook(func() int32 {
			commits.Add(1)
			return c.loan.mayCommit()
		})
		return nil
	}))
	return commits
}

// queue starts appends while the connection is taken, until all of them wait for it. Wait returns their errors.
func queue(t *testing.T, store *Store, n int, call func(i int) error) (wait func() error) {
	t.Helper()
	noError(t, store.writer.take(testContext(t)))
	done := make(chan error, 1)
	go func() { done <- together(n, call) }()
	until(t, "all appends wait", func() bool {
		store.writer.mu.Lock()
		defer store.writer.mu.Unlock()
		return len(store.writer.waiting) == n
	})
	return func() error {
		store.writer.give()
		return <-done
	}
}

func TestAppendsThatWaitShareOneCommit(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	commits := countCommits(t, store)
	const together = 32
	wait := queue(t, store, together, func(i int) error {
		result, err := store.Append(testContext(t), fmt.Sprint("s", i), event.NoStream.WithKey(fmt.Sprint(i)),
			someEvents(2)...)
		if err == nil && (result.Version != 2 || result.Positions[1] != result.Positions[0]+1) {
			err = fmt.Errorf("%+v", result)
		}
		return err
	})
	if n := len(all(t, store.tenant)); n != 0 {
		t.Fatalf("%d events before the commit", n)
	}
	noError(t, wait())
	if n := commits.Load(); n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
	if n := len(all(t, store.tenant)); n != 2*together {
		t.Errorf("%d events", n)
	}
	// Control: appends one after the other have a commit each.
	for range 3 {
		mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	}
	if n := commits.Load(); n != 4 {
		t.Errorf("%d commits, want 4", n)
	}
}

func TestAppendThatFailsLeavesItsGroupAlone(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	mustExec(t, store,
		"create trigger millrace_events_insert_closed before insert on millrace_events when new.type = 'bad' begin select raise(abort, 'bad event'); end")
	commits := countCommits(t, store)
	nowhere := must(store.ForTenant("nowhere"))(t)
	failures := map[int]func() error{
		1: func() error {
			_, err := store.Append(ctx, "half", event.Any.WithKey("k"), event.Event{Type: "good"},
				event.Event{Type: "bad"})
			if err == nil || !strings.Contains(err.Error(), "bad event") {
				return fmt.Errorf("second event is bad: %w", err)
			}
			return nil
		},
		2: func() error {
			_, err := store.Append(ctx, "s", event.Exact(7), someEvents(1)...)
			if !errors.Is(err, event.ErrVersionConflict) {
				return fmt.Errorf("conflict: %w", err)
			}
			return nil
		},
		3: func() error {
			_, err := nowhere.Append(ctx, "s", event.Any, someEvents(1)...)
			if !errors.Is(err, tenancy.ErrUnknown) {
				return fmt.Errorf("unknown tenant: %w", err)
			}
			return nil
		},
	}
	wait := queue(t, store, 10, func(i int) error {
		if fail := failures[i]; fail != nil {
			return fail()
		}
		_, err := store.Append(ctx, fmt.Sprint("s", i), event.NoStream, someEvents(1)...)
		return err
	})
	noError(t, wait())
	events := all(t, store.tenant)
	for i, e := range events {
		if e.Position != int64(i+1) || e.Stream == "half" {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	if len(events) != 7 || commits.Load() != 1 {
		t.Errorf("%d events in %d commits", len(events), commits.Load())
	}
	if r := mustAppend(t, store.tenant, "half", event.NoStream.WithKey("k"), someEvents(1)...); r.Version != 1 ||
		r.Repeated {
		t.Errorf("the append that failed left something: %+v", r)
	}
}

// An append that is alone has no savepoint.
func TestAppendThatFailsAloneLeavesNothing(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	mustExec(t, store,
		"create trigger millrace_events_insert_closed before insert on millrace_events when new.type = 'bad' begin select raise(abort, 'bad event'); end")
	mustExec(t, store,
		"create trigger millrace_events_delete_closed before insert on millrace_events when new.type = 'worse' begin select raise(rollback, 'bad event'); end")
	commits := countCommits(t, store)
	for _, bad := range []string{"bad", "worse"} {
		_, err := store.Append(testContext(t), "s", event.Any.WithKey("k"), event.Event{Type: "good"},
			event.Event{Type: bad})
		if err == nil || !strings.Contains(err.Error(), "bad event") || commits.Load() != 0 {
			t.Errorf("%s: error %v, %d commits", bad, err, commits.Load())
		}
	}
	if r := mustAppend(t, store.tenant, "s", event.NoStream.WithKey("k"), someEvents(1)...); r.Positions[0] != 1 ||
		r.Repeated {
		t.Errorf("an append that failed left something: %+v", r)
	}
}

func TestGroupWhoseCommitFailsIsNotAnswered(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	conn := must(store.writer.db.Conn(testContext(t)))(t)
	var refuse atomic.Bool
	refuse.Store(true)
	noError(t, conn.Raw(func(driverConn any) error {
		driverConn.(sqlite.HookRegisterer).RegisterCommitHook(func() int32 {
			if refuse.Load() {
				return 1
			}
			return 0
		})
		return nil
	}))
	noError(t, conn.Close())
	const n = 5
	var failed atomic.Int64
	wait := queue(t, store, n, func(i int) error {
		if _, err := store.Append(testContext(t), "s", event.Any, someEvents(1)...); err == nil ||
			!strings.Contains(err.Error(), "commit transaction") {
			return fmt.Errorf("answered, although nothing was committed: %w", err)
		}
		failed.Add(1)
		return nil
	})
	noError(t, wait())
	if events := all(t, store.tenant); failed.Load() != n || len(events) != 0 {
		t.Errorf("%d failed, %d events", failed.Load(), len(events))
	}
	refuse.Store(false)
	if r := mustAppend(t, store.tenant, "s", event.NoStream, someEvents(1)...); r.Positions[0] != 1 {
		t.Errorf("%+v", r)
	}
}

// An append that is cancelled while it waits is not made. One in a group is answered, whosever context ends.
func TestCancelledAppendEndsNoOther(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	other := openStore(t, store.path, Options{})
	ctx := testContext(t)
	// As another process does, other holds the lock of the file: the first append waits for it with the connection, the
	// others for the connection.
	noError(t, other.writer.take(ctx))
	tx := must(other.writer.begin(ctx, ctx))(t)
	first, cancel := context.WithCancel(ctx)
	done := make(chan error, 4)
	start := func(ctx context.Context, stream string) {
		waiting := store.waitingAppends()
		go func() {
			_, err := store.Append(ctx, stream, event.Any, someEvents(1)...)
			done <- err
		}()
		until(t, "the append waits", func() bool { return store.waitingAppends() == waiting+1 })
	}
	start(first, "cancelled")
	until(t, "the first append has the connection", func() bool { return len(store.writer.turn) == 0 })
	for i := range 3 {
		start(ctx, fmt.Sprint("s", i))
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the append that was cancelled: %v", err)
	}
	tx.end()
	for range 3 {
		noError(t, <-done)
	}
	var streams []string
	for _, e := range all(t, store.tenant) {
		streams = append(streams, e.Stream)
	}
	slices.Sort(streams)
	if !slices.Equal(streams, []string{"s0", "s1", "s2"}) {
		t.Errorf("appended to %q", streams)
	}
}

func TestAppendThatRunsItsGroupEndsNoOther(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	apply := func(stream string, before func()) *waitingAppend {
		a := must(eventlog.NewAppend(nil, stream, event.Any, someEvents(1)))(t)
		return newWaitingAppend(a, func(ctx context.Context, tx *sql.Tx) (event.Appended, error) {
			before()
			return store.tenant.apply(ctx, tx, a)
		})
	}
	other := apply("other", func() {})
	store.writer.waiting = append(store.writer.waiting, other)
	result, err := store.writer.append(ctx, apply("s", cancel))
	if err != nil || other.err != nil {
		t.Errorf("%v, and the other append: %v", err, other.err)
	}
	if events := all(t, store.tenant); len(events) != 2 || !slices.Equal(result.Positions, []int64{2}) {
		t.Errorf("%d events, %+v", len(events), result)
	}
}

// waitingAppends counts the appends that wait.
func (s *Store) waitingAppends() int {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	return len(s.writer.waiting)
}

func TestAppendWaitsForAnotherProcessUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	other := openStore(t, store.path, Options{})
	why := errors.New("why")
	noError(t, other.InTx(testContext(t), func(context.Context, *sql.Tx) error {
		wait := 10 * time.Millisecond
		until(t, "the append met the lock before its context ended", func() bool {
			ctx, cancel := context.WithTimeoutCause(testContext(t), wait, why)
			defer cancel()
			_, err := store.Append(ctx, "s", event.Any, someEvents(1)...)
			if !errors.Is(err, why) {
				t.Errorf("error %v", err)
				return true
			}
			wait *= 2
			return strings.Contains(err.Error(), "another process writes")
		})
		return nil
	}))
	if r := mustAppend(t, store.tenant, "s", event.NoStream, someEvents(1)...); r.Positions[0] != 1 {
		t.Errorf("%+v", r)
	}
}

func TestSeveralStoresOfOneFileAppendAtOnce(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	const stores, writers, appends = 3, 4, 20
	opened := make([]*Store, stores)
	noError(t, together(stores, func(i int) (err error) {
		// All of them make the file and its tables at once.
		opened[i], err = Open(testContext(t), path, Options{})
		if err != nil {
			return err
		}
		t.Cleanup(opened[i].Close)
		return opened[i].Migrate(testContext(t))
	}))
	noError(t, together(stores*writers, func(w int) error {
		for i := range appends {
			if _, err := opened[w%stores].Append(testContext(t), fmt.Sprint("s", w), event.Exact(int64(i)),
				someEvents(1)...); err != nil {
				return err
			}
		}
		return nil
	}))
	for i, e := range all(t, opened[0].tenant) {
		if e.Position != int64(i+1) {
			t.Fatalf("event %d is at position %d", i+1, e.Position)
		}
	}
	if n := len(all(t, opened[1].tenant)); n != stores*writers*appends {
		t.Errorf("%d events", n)
	}
}

// Neither a stream of transactions nor one of appends keeps the other from the connection.
func TestAppendsAndTransactionsTakeTurns(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	var transactions, appends atomic.Int64
	const enough = 300
	noError(t, together(8, func(i int) error {
		for ctx.Err() == nil {
			var err error
			done := &appends
			if i%2 == 0 {
				done = &transactions
				err = store.InTx(ctx, func(context.Context, *sql.Tx) error { return nil })
			} else {
				_, err = store.Append(ctx, fmt.Sprint("s", i), event.Any, someEvents(1)...)
			}
			if err != nil && ctx.Err() == nil {
				return err
			}
			done.Add(1)
			if min(appends.Load(), transactions.Load()) >= enough {
				cancel()
			}
		}
		return nil
	}))
	if a, b := appends.Load(), transactions.Load(); max(a, b) > 20*min(a, b) || min(a, b) < enough {
		t.Errorf("%d appends, %d transactions", a, b)
	}
}

func TestCallsAfterCloseFail(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	mustAppend(t, store.tenant, "s", event.Any, someEvents(1)...)
	store.Close()
	store.Close()
	_, appendErr := store.Append(ctx, "s", event.Any, someEvents(1)...)
	txErr := store.InTx(ctx, func(context.Context, *sql.Tx) error { return nil })
	for what, err := range map[string]error{"append": appendErr, "transaction": txErr} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := store.Tenants(ctx); err == nil {
		t.Error("the file is read")
	}
}

func TestCloseAnswersAppendsThatWait(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	var answered atomic.Int64
	wait := queue(t, store, 10, func(int) error {
		if _, err := store.Append(testContext(t), "s", event.Any, someEvents(1)...); err == nil {
			answered.Add(1)
		} else if !errors.Is(err, ErrClosed) {
			return err
		}
		return nil
	})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		store.Close()
	}()
	until(t, "the store is closing", func() bool {
		select {
		case <-store.writer.closed:
			return true
		default:
			return false
		}
	})
	noError(t, wait())
	<-closed
	if n := len(all(t, openStore(t, store.path, Options{}).tenant)); int64(n) != answered.Load() {
		t.Errorf("%d events, %d appends were answered", n, answered.Load())
	}
}

// An idle store keeps no appends in memory that were answered. Their bodies may be large.
func TestAnsweredAppendsAreNotKept(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	a := must(eventlog.NewAppend(nil, "s", event.Any, someEvents(1)))(t)
	waiting := newWaitingAppend(a, func(ctx context.Context,
		tx *sql.Tx) (event.Appended, error) {
		return store.tenant.apply(ctx, tx, a)
	})
	kept := weak.Make(waiting)
	must(store.writer.append(testContext(t), waiting))(t)
	until(t, "the append is freed", func() bool {
		runtime.GC()
		return kept.Value() == nil
	})
}
